#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/model_config.h"
#include "parallel/plan.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The plan that `parallel` asks for: degrees that are not given are 1 (`pipeline` one more than a
// disaggregated encoder has), `data` takes the ranks that remain, stages are cut so that the most
// expensive one is as cheap as can be for a full pack. Throws ConfigError when the mesh does not
// fit the ranks, there are more stages than layers, or the schedule cannot run it.
Plan MakePlan(const RunConfig& config, const ModelConfig& model, int ranks);

// Pipeline ranks that hold the encoder alone, by parallel.encoder; 0: inline. Throws ConfigError
// where the model has no encoder or too few layers in it, no pipeline rank is left for the language
// model, or parallel.stage_layers does not end a stage with the encoder.
int EncoderRanks(const RunConfig& config, const ModelConfig& model);

// The first layer of each stage, and the end, for parallel.stage_layers. Throws ConfigError where
// they are not `num_layers` in all.
std::vector<int> StageBegins(const std::vector<int64_t>& stage_layers, int num_layers);

// Recomputation of each layer as `balance` gives it; empty where the planner chooses (`bar`).
// Throws ConfigError for words that do not fit the model.
std::vector<Recompute> GivenRecompute(const RunConfig& config, const ModelConfig& model);

// Micro-batches of a data rank in one optimizer step. Throws ConfigError when train.global_batch
// is no multiple of the data ranks.
int64_t Accumulation(const RunConfig& config, const Plan& plan);

// "data 2 x pipeline 2 x tensor 1, 1f1b, layers 5 + 4, ZeRO-1, recompute full of 4 layers"
std::string DescribePlan(const Plan& plan);

}  // namespace equipoise
