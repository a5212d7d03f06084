#pragma once

#include <optional>
#include <string>
#include <vector>

#include "balance/costs/cluster.h"
#include "balance/costs/cost_model.h"
#include "balance/costs/memory_model.h"
#include "balance/costs/profile.h"
#include "models/spec/model_config.h"
#include "parallel/plan.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"
#include "trainer/loop/step_drift.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Predictions of the cost model for a run's steps: `cluster` is the machine, the plan is given.
// LibTorch-free; the same on every rank.
class StepForecast {
 public:
  // `here`: what this run computes on, in which precision. Throws ConfigError where
  // cluster.profile was not made on such a device and is not forced.
  StepForecast(const RunConfig& config, const ModelConfig& model, const Plan& plan,
               const ProfileUse& here);

  // A profile that is used though it does not fit: the line to warn with; else empty.
  const std::string& warning() const { return warning_; }

  // Costs of the ops of one step on a data rank's micro-batches.
  SimulationCosts Costs(const std::vector<LayerLoad>& loads) const;
  // One step of a pipeline in simulated time. `schedule` is the plan's, completed; `loads` are its
  // micro-batches', of which the first `taken` have features from the step before.
  Simulation Simulated(const Schedule& schedule, const std::vector<LayerLoad>& loads,
                       int taken = 0) const;
  // Its seconds alone, those of one pipeline rank and its tensor ranks of a lane.
  RankSeconds Seconds(const Schedule& schedule, const std::vector<LayerLoad>& loads,
                      int pipeline_rank, int taken = 0, int lane = 0) const;
  // One standard deviation of predicted times, as a share of them.
  double error_band() const { return costs_.error_band(); }
  // Whether predicted times mean something: GPUs that a preset knows, a profile, or given
  // cluster.peak_tflops; of this machine's CPUs no speed is known by itself.
  bool knows_speed() const { return knows_speed_; }
  // The model's FLOPs for these micro-batches as a share of what so many ranks could do in that
  // time at their peak; nothing where that is not known.
  std::optional<double> Mfu(const std::vector<LayerLoad>& all, double seconds, int ranks) const;
  int64_t memory_bytes() const { return costs_.cluster().memory_bytes; }  // of a rank
  // The most that a pipeline rank needs in that step.
  MemoryForecast Memory(const Schedule& schedule, const std::vector<LayerLoad>& loads,
                        int pipeline_rank) const;

 private:
  // cluster.profile, where one is given, and the warning that goes with it.
  struct GivenProfile {
    std::optional<Profile> profile;
    std::string warning;
  };
  static GivenProfile ProfileOf(const RunConfig& config, const ProfileUse& here);
  StepForecast(const RunConfig& config, const ModelConfig& model, const Plan& plan,
               const ProfileUse& here, GivenProfile given);

  Plan plan_;
  std::string warning_;
  CostModel costs_;
  bool knows_peak_, knows_speed_;
};

}  // namespace equipoise
