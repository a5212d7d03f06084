#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/search/plan_request.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The plan given by `parallel` without a search: degrees that are absent are 1 (`pipeline` one more
// than the ranks of a disaggregated encoder), `data` is the number of remaining ranks, and stages
// are cut so that the most expensive one is least expensive for a full pack. Throws ConfigError
// when the mesh does not match the ranks, there are more stages than layers, or the schedule does
// not support the plan.
Plan MakePlan(const RunConfig& config, const ModelConfig& model, int ranks);

// `parallel.zero_ranks`; nothing where it is absent. Throws ConfigError where there is nothing to
// share out.
std::optional<int> ZeroRanks(const RunConfig& config);

// Where the encoder is to lie (parallel.encoder). Throws ConfigError for settings that contradict
// each other or the model.
EncoderPins EncoderPinsOf(const RunConfig& config, const ModelConfig& model);

// Throws ConfigError where parallel.context asks for what its ranks cannot share out: attention
// heads that are too few, pictures of an encoder apart, an encoder that draws at random.
void RequireContext(const RunConfig& config, const ModelConfig& model);

// The begins of the stages in parallel.stage_layers, and the end. Throws ConfigError when the sum
// is not `num_layers`.
std::vector<int> StageBegins(const std::vector<int64_t>& stage_layers, int num_layers);

// The recomputation of each layer that `balance` specifies; empty when the planner chooses it
// (`bar`). Throws ConfigError for values that do not match the model.
std::vector<Recompute> GivenRecompute(const RunConfig& config, const ModelConfig& model);

// Gradient accumulation: the micro-batches of a data rank in one optimizer step. Throws ConfigError
// when train.global_batch is not a multiple of the data ranks of all islands.
int64_t Accumulation(const RunConfig& config, const Plan& plan);

// A plan in one line, such as
// "data 2 x pipeline 2 x tensor 1, 1f1b, layers 5 + 4, ZeRO-1, recompute full of 4 layers".
std::string DescribePlan(const Plan& plan);

}  // namespace equipoise
