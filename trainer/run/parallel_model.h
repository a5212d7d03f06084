#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "models/stages/model_part.h"
#include "models/stages/plan_schedule.h"
#include "parallel/comm/communicator.h"
#include "parallel/data_parallel/gradient_reducer.h"
#include "parallel/mesh_groups.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/plan_agreement.h"
#include "parallel/plan.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"
#include "parallel/shards.h"
#include "parallel/timeline.h"
#include "parallel/zero/owned_slices.h"
#include "parallel/zero/zero_optimizer.h"

namespace equipoise {

// The identity of a step's micro-batches, which must be equal on all ranks: a hash, and the hashed
// items for error messages.
struct StepIdentity {
  uint64_t hash = 0;
  std::function<std::vector<PlanItem>()> items;
};

// A model that is distributed over ranks by a plan: this rank's communicators and stages, and the
// passes over the micro-batches of a step. All functions that run passes are collective over the
// world.
class ParallelModel {
 public:
  struct Options {
    ModelPart::Options part;
    // Costs of a step's ops for the micro-batches of a data rank, by which sends and receives are
    // ordered; empty: the defaults of SimulationCosts. Must be equal on every rank.
    std::function<SimulationCosts(const std::vector<LayerLoad>& loads)> costs;
    int64_t bucket_bytes = GradientReducer::Options().bucket_bytes;
  };
  // REQUIRES: a world of plan.num_ranks() ranks. `world` and `recorder` must outlive it.
  ParallelModel(const ModelConfig& config, const Plan& plan, const Options& options,
                Communicator& world, TimelineRecorder& recorder);

  // Runs forward and backward of this data rank's micro-batches; the gradients of this rank's
  // parameters are then summed over the ranks with the same weights (with ZeRO, in this rank's
  // shard). `pass.loads`
  // are the loads of these micro-batches. Throws ConfigError on every rank when ranks have
  // different schedules or micro-batches, or when the schedule cannot run.
  // With `pass.next_loads` the encoder also runs on the micro-batches of the next step, or all
  // stages make some of its passes, and the next RunStep() has to be given these; it takes what was
  // made of them. REQUIRES then: an encoder in the bubbles, frozen, or delays_updates().
  void RunStep(ModelPart::Pass pass, const StepIdentity& step = {});
  // Whether gradients are those of the weights before the last update (PipeDream-2BW).
  bool delays_updates() const { return DelaysUpdates(plan_.schedule); }
  // Of a step's micro-batches, those whose schedule brings each rank to its peak of memory: where
  // passes run ahead those of two steps may be in flight.
  std::vector<LayerLoad> LoadsAtPeak(std::vector<LayerLoad> loads) const;
  // Drops what was made ahead: the next step has other micro-batches.
  void DropAhead();
  // Runs forward only.
  void Evaluate(ModelPart::Pass pass);

  ModelPart& part() { return *part_; }
  const ModelPart& part() const { return *part_; }
  FlatParameters& parameters() { return part_->parameters(); }
  MeshGroups& groups() { return groups_; }
  const Plan& plan() const { return plan_; }
  // The lane of this rank among the tensor ranks of its pipeline rank (StageNode::lane).
  int lane() const { return LaneHere().lane; }
  // Spans of the last step's reductions at its end; none where gradients are shared out.
  std::vector<GradientReducer::Span> reductions() const {
    return reducer_ ? reducer_->spans() : std::vector<GradientReducer::Span>();
  }
  // What makes layers whole, where gradients are shared out; else null.
  const ShardedUnits* units() const { return units_.get(); }
  // The shards of gradients and optimizer state over the ranks that share out a copy of them
  // (ZeRO), and this rank's place among these.
  const Shards& shards() const { return *shards_; }
  int shard() const { return groups_.shards().rank(); }
  // Whether this rank's copy is the first of them.
  bool first_copy() const {
    return groups_.shard_copies() == nullptr || groups_.shard_copies()->rank() == 0;
  }
  // The ranks that share the optimizer's state, and what of it.
  ZeroOptimizer::Groups optimizer_groups();
  // Whether this rank, among those of its model replica, is one that reports the loss: each context
  // rank that of its own tokens.
  bool reports_loss() const { return part_->has_loss() && groups_.at.tensor == 0; }
  // Whether it is the one that reports what is known of whole micro-batches.
  bool reports_batches() const { return reports_loss() && groups_.at.context == 0; }
  // The schedule of a step for micro-batches of these loads.
  Schedule StepSchedule(const std::vector<LayerLoad>& loads) const {
    return StepSchedule(StepLoads{loads});
  }
  Schedule StepSchedule(const StepLoads& loads) const;
  // The micro-batches of a step whose pictures this rank needs: to encode them, or to know which
  // cannot be decoded. May be called while a step runs.
  std::vector<bool> NeedsPictures(const std::vector<LayerLoad>& loads) const;
  // The same of a step whose features the step before it makes, of which `before` tells; `before`
  // then tells of this one. With an empty `before` it is the first step.
  std::vector<bool> NeedsPictures(const std::vector<LayerLoad>& loads, StepLoads& before) const;
  // The last pass: its schedule, its start on the recorder's clock, this rank's seconds from start
  // to end, and the seconds of computation among these. Ranks end at different times; the time
  // until the slowest ends is idle time as well.
  const Schedule& schedule() const { return schedule_; }
  double started_s() const { return started_s_; }
  // How many of its micro-batches, from the first on, had features from the step before.
  int taken() const { return taken_; }
  double step_s() const { return executor_->span_s(); }
  double busy_s() const { return executor_->busy_s(); }

 private:
  SimulationCosts CostsOf(const std::vector<LayerLoad>& loads) const {
    return costs_ ? costs_(loads) : SimulationCosts();
  }
  std::vector<int> NextOwnersIn(const Schedule& schedule, const StepLoads& loads) const;
  std::vector<bool> EncodedHere(const Schedule& schedule, size_t first) const;
  ExecutorLane LaneHere() const;
  void SplitCopies();
  void Ready(const std::vector<Parameter*>& parameters);
  void SumTied();
  void SumEncoderCopies();
  int64_t CopiedNumel() const;
  at::Tensor SummedGradient(const Parameter& parameter);
  void FinishReduction();
  bool SumsCopiesAtEnd();
  void SumShardCopies();
  void PadLoads(std::vector<LayerLoad>& loads);

  Plan plan_;
  Communicator& world_;
  MeshGroups groups_;
  TimelineRecorder& recorder_;
  PlanSchedule plan_schedule_;
  std::function<SimulationCosts(const std::vector<LayerLoad>& loads)> costs_;
  std::unique_ptr<ModelPart> part_;
  StageLayout forward_only_;  // the same stages with all components frozen
  std::unique_ptr<Shards> shards_;
  std::unique_ptr<GradientReducer> reducer_;  // of whole gradients
  std::unique_ptr<ShardedUnits> units_;       // of gradients that are shared out
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Communicator> tied_group_;    // the pipeline ranks with a copy of a tied weight
  std::vector<Parameter*> tied_;                // this rank's copies: at most two
  std::unique_ptr<Communicator> copies_group_;  // the ranks with copies of the same layers
  // The tensor ranks of this rank's lane, where an encoder has lanes of several.
  std::unique_ptr<Communicator> lane_group_;
  CopiedElements copied_;                 // of them, where copies share their state
  std::vector<Parameter*> encoder_copy_;  // of the encoder, this rank's
  std::set<const Parameter*> ready_;      // parameters whose gradient of this step is complete
  std::vector<int> owners_;               // of features made ahead, as StepLoads has them
  bool begun_ = false;                    // passes of the next step have run
  int taken_ = 0;
  Schedule schedule_;
  double started_s_ = 0;
};

}  // namespace equipoise
