#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/yaml/fields.h"

namespace equipoise {

// Adapters (models/spec/lora.h) in the section `model`.
struct AdapterSection {
  std::string type = "lora";
  std::vector<std::string> targets, train;
  int64_t rank = 8;
  double alpha = 16, dropout = 0;
  bool rslora = false, dora = false;
  std::string init;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("type", type, "kind of adapter", OneOf({"lora"}));
    visit("targets", targets,
          "linear layers that get an adapter while the rest of the model is frozen; all-linear, or "
          "regular expressions on their names such as q_proj; empty = no adapters");
    visit("rank", rank, "columns of A and B", Between(1, 65536));
    visit("alpha", alpha, "adapters are scaled by alpha / rank", AtLeast(0));
    visit("dropout", dropout, "share of an adapter's inputs that are set to 0", Between(0, 0.99));
    visit("rslora", rslora, "scale by alpha / sqrt(rank) instead");
    visit("dora", dora, "train magnitudes of the outputs too (DoRA)");
    visit("train", train,
          "modules that are trained in full beside the adapters, as regular expressions on names");
    visit("init", init,
          "folder of PEFT whose adapter the first step begins with; gives the keys above but "
          "dropout");
  }
};

}  // namespace equipoise
