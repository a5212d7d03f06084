#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/stages/stage_layout.h"
#include "parallel/plan.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// The micro-batches of a step of a data rank.
struct StepLoads {
  std::vector<LayerLoad> now;
  // By micro-batch the copy of the encoder that has made its features in the step before; -1: it
  // has no pictures. Empty: nothing is made yet.
  std::vector<int> owners = {};
  // Those of the next step, whose features this step makes in its bubbles, or of which it runs
  // passes ahead (PipeDream-2BW). Empty: it does neither.
  std::vector<LayerLoad> next = {};
  // Whether the step before has run passes of this one ahead.
  bool begun = false;

  // Of both steps, in the order of their numbers (parallel/schedule/prefetch.h).
  std::vector<LayerLoad> All() const;
  // The micro-batches whose features the step before has made.
  int taken() const { return static_cast<int>(owners.size()); }
};

// A plan's schedule: built by its name, or that of its file, which is parsed once. LibTorch-free.
class PlanSchedule {
 public:
  // Throws ConfigError, with line and column, where the file holds no schedule.
  explicit PlanSchedule(const Plan& plan);

  // All ops of a step on these micro-batches of a data rank, with transfers and reductions.
  // `costs`: of the ops on them, by which transfers are ordered (AddTransfers()) and the passes of
  // an encoder laid into bubbles (FillBubbles()). Throws ConfigError where the schedule is from a
  // file and is for other stages or another number of micro-batches, incomplete, out of order, or
  // deadlocks.
  Schedule StepOps(const StageLayout& stages, const std::vector<LayerLoad>& loads,
                   const SimulationCosts& costs) const;

  // Where features are made or passes run a step ahead, or were. `costs`: on the micro-batches of
  // both steps. REQUIRES, where loads has more than `now`: an encoder in the bubbles, frozen, or a
  // schedule that delays updates, whose steps have equally many micro-batches.
  Schedule StepOps(const StageLayout& stages, const StepLoads& loads,
                   const SimulationCosts& costs) const;

  // StepOps() without transfers, unproved: for the simulator, which times them by itself.
  Schedule ComputeOps(const StageLayout& stages, const std::vector<LayerLoad>& loads,
                      const SimulationCosts& costs) const;

  // Of an encoder that runs a step ahead as StepOps(); these have transfers. Of passes that run
  // ahead without them.
  Schedule ComputeOps(const StageLayout& stages, const StepLoads& loads,
                      const SimulationCosts& costs) const;

  // Forwards alone, for evaluation. `stages`: with all components frozen.
  static Schedule ForwardOps(const StageLayout& stages, const std::vector<LayerLoad>& loads,
                             const SimulationCosts& costs);

 private:
  // The compute ops of a step that runs passes of the next one.
  static Schedule DelayedOps(const StageLayout& stages, const StepLoads& loads);
  // StepOps() of an encoder that runs a step ahead, or ran.
  Schedule OpsAhead(const StageLayout& stages, const StepLoads& loads,
                    const SimulationCosts& costs) const;
  // The compute ops of stages that lie so, for micro-batches that all have work.
  Schedule Build(const StageGraph& graph, int micro_batches) const;

  std::string name_;  // of a schedule or a file
  std::optional<Schedule> in_file_;
};

}  // namespace equipoise
