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
#include "parallel/schedule/schedule.h"
#include "parallel/shards.h"
#include "parallel/timeline.h"

namespace equipoise {

// What a step works on, as all ranks know it: a hash, and the items behind it.
struct StepIdentity {
  uint64_t hash = 0;
  std::function<std::vector<PlanItem>()> items;
};

// A model spread over the ranks as a plan says: this rank's groups and stages, and the passes over
// a step's micro-batches. Every function is collective over the world.
class ParallelModel {
 public:
  struct Options {
    ModelPart::Options part;
    int64_t bucket_bytes = GradientReducer::Options().bucket_bytes;
  };
  // REQUIRES: a world of plan.num_ranks() ranks. `world` and `recorder` must outlive it.
  ParallelModel(const ModelConfig& config, const Plan& plan, const Options& options,
                Communicator& world, TimelineRecorder& recorder);

  // Forward and backward of this pipeline's micro-batches; the gradients of this rank's parameters
  // are then sums over the data ranks. `pass.loads` are those of this data rank. Throws ConfigError
  // on every rank when ranks have worked out different plans, or where the
  // schedule cannot run on this one.
  void RunStep(ModelPart::Pass pass, const StepIdentity& step = {});
  // Forward alone.
  void Evaluate(ModelPart::Pass pass);

  ModelPart& part() { return *part_; }
  const ModelPart& part() const { return *part_; }
  FlatParameters& parameters() { return part_->parameters(); }
  MeshGroups& groups() { return groups_; }
  const Plan& plan() const { return plan_; }
  GradientReducer& reducer() { return *reducer_; }
  // How the data ranks share the gradient, and so the optimizer's state.
  const Shards& shards() const { return *shards_; }
  // Whether this rank is the one of its data rank that reports the loss.
  bool reports_loss() const { return part_->has_loss() && groups_.at.tensor == 0; }
  // What a step on these micro-batches runs.
  Schedule StepSchedule(const std::vector<LayerLoad>& loads) const;
  // Of the last pass: what was run, when it began by the recorder, this rank's seconds from begin
  // to end, and those of them in which it computed. Ranks end at different times: what a rank waits
  // for the slowest is idle too.
  const Schedule& schedule() const { return schedule_; }
  double started_s() const { return started_s_; }
  double step_s() const { return executor_->span_s(); }
  double busy_s() const { return executor_->busy_s(); }

 private:
  void Ready(const std::vector<Parameter*>& parameters);
  void SumTied();
  void FinishReduction();

  Plan plan_;
  Communicator& world_;
  MeshGroups groups_;
  TimelineRecorder& recorder_;
  PlanSchedule plan_schedule_;
  std::unique_ptr<ModelPart> part_;
  StageLayout forward_only_;  // the same stages with everything frozen
  std::unique_ptr<Shards> shards_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Communicator> tied_group_;  // the ranks that hold a copy of a tied weight
  std::vector<Parameter*> tied_;              // this rank's copies: at most two
  std::set<const Parameter*> ready_;          // in this step
  Schedule schedule_;
  double started_s_ = 0;
};

}  // namespace equipoise
