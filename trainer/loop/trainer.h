#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "balance/search/plan_search.h"
#include "configs/base/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/timeline.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/device/precision.h"
#include "trainer/planner/plan_report.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

class MpiEnvironment;

// How `train` treats checkpoints that lie in the run folder.
enum class Resume {
  kAuto,  // go on from the newest good one, if there is one
  kNone,  // refuse a run folder that holds checkpoints
  kFrom,  // go on from a given one
};

struct TrainOptions {
  RunConfig config;
  Resume resume = Resume::kAuto;
  std::string resume_from;  // with kFrom
  bool trial = false;       // plans are given one after another (TimeSteps); nothing is written
  bool dry_run = false;     // for PlanTrainer() alone
};

// What one optimizer step did; the same on every rank.
struct StepResult {
  // Weighted mean over the targets of the step, and gradient norm before clipping; absent when no
  // target was there (no picture of the step could be decoded): the step is skipped.
  std::optional<double> loss, grad_norm;
  double lr = 0;
  int64_t tokens = 0, samples = 0, images = 0;
  BalanceMetrics balance;  // as MeasureStep() gives it
  int64_t bad_samples = 0;
  double step_s = 0;
  double data_wait_s = 0;  // longest of the ranks
  // With a pipeline: the ranks' mean idle share of the passes, until the slowest rank ends.
  std::optional<double> bubble_share;
  std::optional<double> predicted_step_s, mfu;  // where the devices' speed is known
  std::optional<double> eval_loss;  // on data.eval, where it was measured after this step
  bool stop = false;                // some rank was asked to stop
};

struct StepSums;
struct TrainerParts;

// The plan of the training run that these options ask for, on the ranks that were started, after
// all that such a run checks before it builds its model: throws what the Trainer would. The cost
// index is built where it is absent; nothing else is written, and no weights are read. Collective;
// the same report on every rank.
PlanReport PlanTrainer(const TrainOptions& options, MpiEnvironment& mpi);

// A training run: builds the parts in order, owns them, and runs the loop.
class Trainer {
 public:
  // Reads data, model and checkpoint. Throws UserError before any step is done.
  Trainer(const TrainOptions& options, MpiEnvironment& mpi);
  ~Trainer();

  // Trains to the last step, or until a stop is asked for (then saves and returns kStopped).
  ExitCode Run();

  // Of a trial, in place of Run(): the first steps of a run under this plan, from first weights.
  // Seconds of those after the warm-up, of the slowest rank each. What the plan before held is
  // released. Throws CollectiveRunError where a rank cannot get the memory that its plan is
  // foreseen to need; in a world of one for every failure. (A rank that fails amid a step of
  // several ranks ends the job, as in training.)
  std::vector<double> TimeSteps(const ScoredPlan& plan, int warm_up, int timed);
  // Of the micro-batches of TimeSteps(), and how many packs a step has.
  void UsePacks(const GroupLimits& limits, int64_t global_batch);
  Precision precision() const;  // of the computation

 private:
  StepResult RunStep();
  StepSums RunMicroBatches(const StepBatches& plan);
  void UpdateWeights(const StepBatches& plan, StepResult& result);
  bool Due(int64_t every) const;

  RunConfig config_;
  TrainState state_;
  std::unique_ptr<TrainerParts> parts_;
};

}  // namespace equipoise
