#include "parallel/schedule/schedule.h"

#include <algorithm>

namespace equipoise {

bool SendsRows(const Schedule& schedule, int from, int to, int micro_batch) {
  return schedule.work.Sends(from, micro_batch) && schedule.work.Runs(to, micro_batch);
}

bool SendsGradient(const Schedule& schedule, int from, int to, int micro_batch) {
  return SendsRows(schedule, to, from, micro_batch) &&
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
