#include "parallel/schedule/schedule.h"

#include <algorithm>

namespace equipoise {

namespace {

bool HaveRows(const Schedule& schedule, int from, int to, int micro_batch) {
  return schedule.work.Sends(from, micro_batch) && schedule.work.Runs(to, micro_batch);
}

// Whether a stage's pass of a kind runs in this step, and not in the one before or after.
bool IsHere(const Schedule& schedule, std::vector<int> PassesAhead::*kind, int stage,
            int micro_batch) {
  const auto count = [&](const PassesAhead& passes) {
    const std::vector<int>& by_stage = passes.*kind;
    return by_stage.empty() ? 0 : by_stage[static_cast<size_t>(stage)];
  };
  const int own = schedule.own();
  return micro_batch < own ? micro_batch >= count(schedule.ahead.before)
                           : micro_batch - own < count(schedule.ahead.after);
}

}  // namespace

bool RunsForward(const Schedule& schedule, int stage, int micro_batch) {
  return IsHere(schedule, &PassesAhead::forwards, stage, micro_batch) &&
         schedule.work.Runs(stage, micro_batch);
}

bool RunsBackward(const Schedule& schedule, int stage, int micro_batch) {
  return IsHere(schedule, &PassesAhead::backwards, stage, micro_batch) &&
         schedule.work.Runs(stage, micro_batch) && schedule.graph.HasBackward(stage);
}

bool SendsRows(const Schedule& schedule, int from, int to, int micro_batch) {
  return RunsForward(schedule, from, micro_batch) && HaveRows(schedule, from, to, micro_batch);
}

bool SendsGradient(const Schedule& schedule, int from, int to, int micro_batch) {
  return IsHere(schedule, &PassesAhead::backwards, from, micro_batch) &&
         HaveRows(schedule, to, from, micro_batch) &&
         schedule.graph.stages[from].needs_input_gradient && schedule.graph.HasBackward(to);
}

std::vector<int> ConsumersOf(const Schedule& schedule,
                             const std::vector<std::vector<int>>& previous, const Op& op) {
  std::vector<int> consumers;
  if (IsForward(op.kind)) {
    for (const int next : schedule.graph.stages[op.stage].next) {
      if (SendsRows(schedule, op.stage, next, op.micro_batch)) consumers.push_back(next);
    }
  } else if (MakesInputGradient(op.kind)) {
    for (const int before : previous[op.stage]) {
      if (SendsGradient(schedule, op.stage, before, op.micro_batch)) consumers.push_back(before);
    }
  }
  return consumers;
}

int LaneOf(const StageGraph& graph, const Op& op) {
  if (op.kind == OpKind::kOptimizer) return -1;
  const int own = graph.stages[static_cast<size_t>(op.stage)].lane;
  return IsTransfer(op.kind) ? std::max(own, graph.stages[static_cast<size_t>(op.peer)].lane) : own;
}

}  // namespace equipoise
