#include "models/stages/plan_schedule.h"

#include <utility>

#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/schedule_text.h"
#include "parallel/schedule/validate.h"

namespace equipoise {

PlanSchedule::PlanSchedule(const Plan& plan) : name_(plan.schedule) {
  if (!plan.schedule_text.empty()) in_file_ = ParseSchedule(plan.schedule_text, plan.schedule);
}

Schedule PlanSchedule::ComputeOps(const StageGraph& graph, int micro_batches) const {
  if (!in_file_) return BuildSchedule(name_, graph, micro_batches);
  Schedule schedule = *in_file_;
  if (schedule.micro_batches != micro_batches ||
      schedule.graph.num_stages() != graph.num_stages()) {
    throw ConfigError(name_ + ": " + std::to_string(schedule.graph.num_stages()) + " stages and " +
                      std::to_string(schedule.micro_batches) + " micro-batches; this run has " +
                      std::to_string(graph.num_stages()) + " and " + std::to_string(micro_batches) +
                      " a data rank; write the file for those");
  }
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    const int there = schedule.graph.stages[s].rank, here = graph.stages[s].rank;
    if (there == here) continue;
    throw ConfigError(name_ + ": stage " + std::to_string(s) + " on rank " + std::to_string(there) +
                      "; this plan has it on rank " + std::to_string(here));
  }
  schedule.graph = graph;
  for (std::vector<Op>& ops : schedule.ranks) {
    std::erase_if(ops, [](const Op& op) { return !IsCompute(op.kind); });
  }
  return schedule;
}

Schedule PlanSchedule::StepOps(const StageLayout& stages, const std::vector<LayerLoad>& loads,
                               int64_t element_bytes) const {
  Schedule ops = ComputeOps(stages.graph(), static_cast<int>(loads.size()));
  const auto complete = [&] {
    return CompleteSchedule(std::move(ops), stages.Work(loads), stages.Costs(loads, element_bytes));
  };
  if (!in_file_) return complete();
  // Built ones are proved by their tests; a file may hold anything.
  Schedule schedule;
  try {
    schedule = complete();
  } catch (const ConfigError& deadlock) {
    throw ConfigError(name_ + ": " + deadlock.what());
  }
  Validate(schedule, name_);
  return schedule;
}

}  // namespace equipoise
