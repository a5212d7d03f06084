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
#include "parallel/schedule/simulate.h"
#include "parallel/shards.h"
#include "parallel/timeline.h"

namespace equipoise {

// Identity of the work of a step, which all ranks must agree on: a hash, and the items behind it.
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
    // Costs of the ops of a step on a data rank's micro-batches, by which their transfers are
    // ordered; empty: SimulationCosts' defaults. The same on every rank.
    std::function<SimulationCosts(const std::vector<LayerLoad>& loads)> costs;
    int64_t bucket_bytes = GradientReducer::Options().bucket_bytes;
  };
  // REQUIRES: a world of plan.num_ranks() ranks. `world` and `recorder` must outlive it.
  ParallelModel(const ModelConfig& config, const Plan& plan, const Options& options,
                Communicator& world, TimelineRecorder& recorder);

  // Runs forward and backward of this pipeline's micro-batches; the gradients of this rank's
  // parameters are then sums over the data ranks. `pass.loads`: of this data rank. Throws
  // ConfigError on every rank when ranks have made different schedules, or where the schedule
  // cannot run.
  void RunStep(ModelPart::Pass pass, const StepIdentity& step = {});
  // Runs forwards alone.
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
  // The schedule of a step on these micro-batches.
  Schedule StepSchedule(const std::vector<LayerLoad>& loads) const;
  // The last pass: its schedule, its start by the recorder, this rank's seconds from start to end,
  // and the seconds of them in which it computed. Ranks end at different times: what a rank waits
  // for the slowest is idle too.
  const Schedule& schedule() const { return schedule_; }
  double started_s() const { return started_s_; }
  double step_s() const { return executor_->span_s(); }
  double busy_s() const { return executor_->busy_s(); }

 private:
  SimulationCosts CostsOf(const std::vector<LayerLoad>& loads) const {
    return costs_ ? costs_(loads) : SimulationCosts();
  }
  void Ready(const std::vector<Parameter*>& parameters);
  void SumTied();
  void FinishReduction();

  Plan plan_;
  Communicator& world_;
  MeshGroups groups_;
  TimelineRecorder& recorder_;
  PlanSchedule plan_schedule_;
  std::function<SimulationCosts(const std::vector<LayerLoad>& loads)> costs_;
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
