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

// Passes that run in the step before theirs (PipeDream-2BW, arXiv 2006.09503): by stage how many
// forwards and backwards of a step's micro-batches, from the first on. Empty: none.
struct PassesAhead {
  std::vector<int> forwards, backwards;

  bool operator==(const PassesAhead&) const = default;
};
struct RunAhead {
  PassesAhead before;  // of this step, which the step before has run
  PassesAhead after;   // of the next step, which this one runs
  int next = 0;        // micro-batches of the next step: their numbers follow this step's

  bool operator==(const RunAhead&) const = default;
};

// A pipeline schedule: for each rank of one pipeline the ops of one optimizer step, in order. A
// plain value: builders make it of compute ops, passes complete it, the validator proves it,
// simulator and executor run it.
struct Schedule {
  StageGraph graph;
  int micro_batches = 0;
  StepWork work;
  std::vector<std::vector<Op>> ranks;  // [rank][position]
  RunAhead ahead = {};

  // Micro-batches of the step itself.
  int own() const { return micro_batches - ahead.next; }
  bool operator==(const Schedule&) const = default;
};

// Whether a stage's forward, or its backward where it has one, belongs to this schedule: the stage
// has work for the micro-batch, and the pass runs in this step.
bool RunsForward(const Schedule& schedule, int stage, int micro_batch);
bool RunsBackward(const Schedule& schedule, int stage, int micro_batch);
// Whether rows go from stage `from` to stage `to` after it: `from` produces some in this step, and
// `to` takes them, in this step or the next.
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
