#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/stages/stage_layout.h"
#include "parallel/plan.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// A plan's schedule: built by its name, or that of its file, which is parsed once. LibTorch-free.
class PlanSchedule {
 public:
  // Throws ConfigError, with line and column, where the file holds no schedule.
  explicit PlanSchedule(const Plan& plan);

  // The compute ops of a step. Throws ConfigError where the file is for other stages or another
  // number of micro-batches.
  Schedule ComputeOps(const StageGraph& graph, int micro_batches) const;

  // All ops of a step on these micro-batches of a data rank, with transfers and reductions.
  // `costs`: of the ops on them, by which transfers are ordered (AddTransfers()). Throws
  // ConfigError, with the file's name, where its schedule is incomplete, out of order or deadlocks.
  Schedule StepOps(const StageLayout& stages, const std::vector<LayerLoad>& loads,
                   const SimulationCosts& costs) const;

 private:
  std::string name_;  // of a schedule or a file
  std::optional<Schedule> in_file_;
};

}  // namespace equipoise
