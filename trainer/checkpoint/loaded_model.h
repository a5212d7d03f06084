#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "models/stages/stage.h"
#include "parallel/parameter.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// A whole model on this rank, with allocated parameters.
struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<Stage> stage;
  std::unique_ptr<FlatParameters> parameters;

  int64_t parameter_count() const;
};

struct LoadOptions {
  at::ScalarType dtype = at::kFloat;  // dtype of the computation
  at::Device device = at::kCPU;
  std::vector<std::string> freeze;  // components without gradients
  bool inference = false;           // no parameter has a gradient
};

// Builds a model whose weights are not set yet.
LoadedModel BuildModel(const ModelConfig& config, const LoadOptions& options);

// Sets the weights of a run's first step: those of its folders, and its adapters.
void LoadFirstWeights(LoadedModel& model, const RunConfig& run);
// Throws ConfigError where the base that a run's settings name is not the one that a checkpoint's
// adapters were trained over, DataError where it cannot be read.
void CheckBase(const RunConfig& run, const std::string& checkpoint_dir);
// Sets the weights from a checkpoint of a run: all of them, or those over the base of its adapters.
// Throws DataError, and ConfigError where the base is not given, or as CheckBase().
void LoadRun(LoadedModel& model, const RunConfig& run, const std::string& checkpoint_dir);
// Sets weights, parts of them on tensor-parallel ranks, from a checkpoint folder (step-*): all but
// the base of adapters. Throws DataError.
void LoadCheckpointWeights(FlatParameters& parameters, const std::string& checkpoint_dir);

}  // namespace equipoise
