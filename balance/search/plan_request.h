#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "balance/costs/cluster.h"
#include "balance/costs/cost_model.h"
#include "balance/costs/profile.h"
#include "balance/costs/program.h"
#include "balance/groups/workload.h"
#include "balance/search/plan_rules.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"

namespace equipoise {

// Where the encoder is to lie. What is absent is searched, but for the ranks of a disaggregated
// encoder, which are 1.
struct EncoderPins {
  std::optional<EncoderPlacement> placement = EncoderPlacement::kInline;
  std::optional<int> ranks, chunks;  // as in Plan
  // Tensor ranks of a copy in the bubbles.
  std::optional<int> tensor = {};
  // Of the model, from the first on, that an encoder in the bubbles has; absent: vision and
  // projector.
  std::optional<int> layers = {};
  // An encoder in the bubbles runs a step ahead, which keeps features.
  bool prefetch = false;
};

// Choices that the search must keep; those that are absent are searched.
struct PlanPins {
  std::optional<int> data, tensor, pipeline, chunks;
  std::optional<ShardedState> sharded;
  ShardedState offloaded = ShardedState::kNone;  // as in Plan
  std::optional<int> zero_ranks;                 // as in Plan; of plans that share state out
  EncoderPins encoder;
  std::optional<std::string> schedule;  // a name of parallel/schedule/builders.h
  std::vector<int> stage_begins;        // empty: searched
  std::vector<Recompute> recompute;     // by layer; empty: by the rule
  // Absent: searched; true: plans with tensor ranks alone.
  std::optional<bool> sequence = false;
  int context = 1;  // not searched here (trainer/planner/limit_search.h); `style` has it too
};

// Islands (DiLoCo) that each train by the plan of a request, side by side.
struct IslandsRequest {
  int count = 1;
  int64_t every = 0;          // steps between outer steps; 0: there are none
  int64_t element_bytes = 4;  // of what islands send
};

// Input of the search for a plan.
struct PlanRequest {
  ModelConfig model;
  std::vector<std::string> frozen;
  int64_t element_bytes = 2;  // of weights and activations in the computation
  RunStyle style;             // as this program runs, whatever the plan
  Cluster cluster;
  int ranks = 1;  // of one island
  IslandsRequest islands;
  Workload workload;
  std::shared_ptr<const Profile> profile;  // may be null
  PlanPins pins;
  PartitionRule partition = PartitionRule::kBalanced;
  RecomputeRule recompute = RecomputeRule::kAdaptive;
  int keep = 5;         // most plans returned
  int threads = 1;      // of a search, whose result does not depend on them
  double within_s = 0;  // only plans with shorter steps are returned; 0: no limit

  // Whether a plan's encoder runs a step ahead.
  bool RunsAhead(const Plan& plan) const {
    return pins.encoder.prefetch && FillsBubbles(plan.encoder);
  }
  // How a plan with or without sequence parallelism is executed.
  RunStyle StyleWith(bool sequence) const {
    RunStyle with = style;
    with.sequence_parallel = sequence;
    return with;
  }
  // How a plan's layers are priced.
  CostModel::Options CostOptions(const Plan& plan) const {
    return CostModel::OptionsOf(
        plan,
        {.element_bytes = element_bytes, .frozen = frozen, .style = StyleWith(plan.sequence)});
  }
};

}  // namespace equipoise
