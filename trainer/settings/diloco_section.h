#pragma once

#include <cstdint>
#include <string>

#include "configs/yaml/fields.h"

namespace equipoise {

// DiLoCo (parallel/diloco/outer_optimizer.h), in the section `train`.
struct DilocoSection {
  int64_t islands = 1;
  int64_t every = 0;
  double lr = 0.7, momentum = 0.9;
  std::string reduce_dtype = "fp32";

  bool on() const { return every > 0; }

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("islands", islands,
          "models that train side by side, each on as many neighbouring ranks, such as those of a "
          "data centre, and on its share of each step's packs; the keys of `parallel` are those of "
          "one island",
          Between(1, 1 << 16));
    visit("every", every,
          "steps that each island takes by itself before an outer step on the mean of their "
          "weights, between which they send each other no weight and no gradient; 0 = no outer "
          "steps",
          Between(0, 1e12));
    visit("lr", lr, "of the outer optimizer, SGD with Nesterov's momentum", Between(0, 100));
    visit("momentum", momentum, "of the outer optimizer", Between(0, 0.999));
    visit("reduce_dtype", reduce_dtype,
          "in which islands send what their weights have moved by; bf16 halves the bytes",
          OneOf({"fp32", "bf16"}));
  }
};

}  // namespace equipoise
