#pragma once

#include <cstdint>
#include <vector>

#include "parallel/schedule/op.h"
#include "parallel/schedule/stage_graph.h"

namespace equipoise {

// What a step's micro-batches bring to the stages: a stage made of vision layers has nothing to do
// for a micro-batch without pictures. Empty tables: everything runs, everything sends.
struct StepWork {
  std::vector<std::vector<bool>> runs;   // [stage][micro-batch] its forward computes something
  std::vector<std::vector<bool>> sends;  // [stage][micro-batch] and its output has rows

  bool Runs(int stage, int micro_batch) const { return runs.empty() || runs[stage][micro_batch]; }
  bool Sends(int stage, int micro_batch) const {
    return Runs(stage, micro_batch) && (sends.empty() || sends[stage][micro_batch]);
  }
  bool operator==(const StepWork&) const = default;
};

// What each rank of one pipeline does in one optimizer step, in order. A plain value: builders make
// it of compute ops, passes complete it, the validator proves it, simulator and executor run it.
struct Schedule {
  StageGraph graph;
  int micro_batches = 0;
  StepWork work;
  std::vector<std::vector<Op>> ranks;  // [rank][position]

  bool operator==(const Schedule&) const = default;
};

// Whether rows go from a stage to one after it in a micro-batch: `from` makes some and `to` runs.
bool SendsRows(const Schedule& schedule, int from, int to, int micro_batch);
// Whether their gradient comes back from stage `from` to stage `to` before it.
bool SendsGradient(const Schedule& schedule, int from, int to, int micro_batch);
// The stages that take what a compute op makes, ascending: stages after it for F and V, stages
// before it for B, I and U, none for W.
std::vector<int> TakersOf(const Schedule& schedule, const Op& op);

struct OpPlace {
  int rank = 0;
  int position = 0;
  auto operator<=>(const OpPlace&) const = default;
};

// The dependency rules, in one place for validator, simulator and executor: for every op
// ([rank][position]) the places of the ops whose results it takes, beside the order of its own
// rank's list:
//   F, V   the F or V of each stage before it that sends rows
//   B, I, U  its own F or V, and the B, I or U of each stage after it that it sends rows to (where
//          that stage makes an input gradient)
//   W      its own I
//   S      the op that makes what it sends;   R  the matching S
//   REDUCE all B, W and U of its stage;       OPT  all REDUCE of its rank
// Where a value crosses ranks and the schedule has the transfer, the taking op waits for its R;
// where the schedule has no transfers yet, for the making op itself. An op that is missing from the
// lists is left out here: completeness is the validator's.
std::vector<std::vector<std::vector<OpPlace>>> Dependencies(const Schedule& schedule);

}  // namespace equipoise
