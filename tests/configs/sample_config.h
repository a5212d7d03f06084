#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/yaml/fields.h"

namespace equipoise {

// A configuration with every kind of field.
struct SampleSource {
  std::string path;
  double repeat = 1.0;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("path", path, "file of records");
    visit("repeat", repeat, "times it is used", Between(0, 1000));
  }
};

struct SampleTrain {
  int64_t steps = 200;
  double lr = 1e-4;
  bool shuffle = true;
  std::string schedule = "cosine";
  std::optional<int64_t> seed;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("steps", steps, "optimizer steps", AtLeast(1));
    visit("lr", lr, "highest learning rate", Between(0, 1));
    visit("shuffle", shuffle, "whether the order is random");
    visit("schedule", schedule, "of the learning rate", OneOf({"cosine", "linear"}));
    visit("seed", seed, "of the order", AtLeast(0));
  }
};

struct SampleParallel {
  static constexpr const char* kScalarForm = "auto";
  bool automatic = true;
  std::optional<int64_t> data;
  double timeout = 600;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("data", data, "ranks", AtLeast(1));
    visit("timeout", timeout, "seconds", AtLeast(1));
  }
};

struct SampleConfig {
  SampleTrain train;
  std::vector<SampleSource> sources;
  std::vector<std::string> freeze;
  std::vector<int64_t> sizes = {1, 2};
  SampleParallel parallel;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("train", train, "how it is trained");
    visit("sources", sources, "what it is trained on");
    visit("freeze", freeze, "modules that are not trained", OneOf({"vision", "llm"}));
    visit("sizes", sizes, "numbers", AtLeast(1));
    visit("parallel", parallel, "how ranks share the work");
  }
};

}  // namespace equipoise
