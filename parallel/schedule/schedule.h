#pragma once

#include <cstdint>
#include <vector>

#include "parallel/schedule/op.h"
#include "parallel/schedule/stage_graph.h"

namespace equipoise {

// The stages that have work for each micro-batch of a step: a stage of vision layers has none for a
// micro-batch without pictures. Empty tables: everything runs, everything sends.
struct StepWork {
  std::vector<std::vector<bool>> runs;   // [stage][micro-batch]: its forward computes something
  std::vector<std::vector<bool>> sends;  // [stage][micro-batch]: and its output has rows

  bool Runs(int stage, int micro_batch) const { return runs.empty() || runs[stage][micro_batch]; }
  bool Sends(int stage, int micro_batch) const {
    return Runs(stage, micro_batch) && (sends.empty() || sends[stage][micro_batch]);
  }
  bool operator==(const StepWork&) const = default;
};

// A pipeline schedule: for each rank of one pipeline the ops of one optimizer step, in order. A
// plain value: builders make it of compute ops, passes complete it, the validator proves it,
// simulator and executor run it.
struct Schedule {
  StageGraph graph;
  int micro_batches = 0;
  StepWork work;
  std::vector<std::vector<Op>> ranks;  // [rank][position]

  bool operator==(const Schedule&) const = default;
};

// Whether rows go from stage `from` to stage `to` after it: `from` produces some and `to` runs.
bool SendsRows(const Schedule& schedule, int from, int to, int micro_batch);
// Whether the gradient of those rows goes back from stage `from` to stage `to` before it.
bool SendsGradient(const Schedule& schedule, int from, int to, int micro_batch);
// The stages that consume the result of a compute op, ascending: stages after it for F and V,
// stages before it for B, I and U, none for W. `previous` is the graph's PreviousStages().
std::vector<int> ConsumersOf(const Schedule& schedule,
                             const std::vector<std::vector<int>>& previous, const Op& op);

// The lane of the tensor ranks that run an op; -1: all of them do. A transfer to or from a stage in
// a lane is that lane's.
int LaneOf(const StageGraph& graph, const Op& op);
// Whether the tensor ranks of a lane run it.
inline bool RunsInLane(const StageGraph& graph, const Op& op, int lane) {
  const int own = LaneOf(graph, op);
  return own < 0 || own == lane;
}

// The position of an op: schedule.ranks[rank][position].
struct OpPlace {
  int rank = 0;
  int position = 0;
  auto operator<=>(const OpPlace&) const = default;
};

}  // namespace equipoise
