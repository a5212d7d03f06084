#pragma once

#include <string>
#include <vector>

#include "parallel/placement.h"
#include "parallel/schedule/schedule.h"

namespace equipoise {

// Builders emit compute ops alone (F and B, or I and W; V and U for encoder stages), for every
// stage and micro-batch; CompleteSchedule() of passes.h adds the rest. The names are those of
// `parallel.schedule`. REQUIRES: M >= 1 micro-batches, a graph that CheckGraph() takes.

// One micro-batch after the other, forward and backward through all stages: naive model
// parallelism. Runs any graph.
Schedule BuildNaive(const StageGraph& graph, int micro_batches);
// All forwards, then all backwards, both ascending (GPipe, arXiv 1811.06965). Runs any graph; a
// rank passes a micro-batch through all its stages before the next.
Schedule BuildGPipe(const StageGraph& graph, int micro_batches);
// A rank with d ranks after it on the longest way to the loss runs min(d, M) forwards ahead, then
// one forward and one backward in turn (PipeDream-Flush, arXiv 2006.09503). An encoder chain of its
// own is deeper than the LLM stage it feeds by its length, so it runs that many ahead (as
// Cornstarch's, arXiv 2503.11367). Stages that share a rank run one after the other.
// REQUIRES: no way through the stages comes back to a rank that it has left.
Schedule Build1F1B(const StageGraph& graph, int micro_batches);
// 1F1B whose backwards are in two halves (ZB-H1, arXiv 2401.10241 section 3.1): the input gradient
// at once, since the rank before waits for it, the weight gradients one micro-batch later for each
// rank in front, so that they fill the end of the pipeline, where 1F1B stands still. No rank keeps
// more micro-batches than 1F1B's first. REQUIRES: as 1F1B; an encoder's backwards stay whole.
Schedule BuildZbH1(const StageGraph& graph, int micro_batches);
// 1F1B over the chunks of each rank (arXiv 2104.04473 section 2.2). REQUIRES: a chain dealt to the
// ranks in turn, as many stages on each, behind encoders, if any, with a rank each: encoder s is
// stage s on rank s. Micro-batches are padded to a multiple of the chain's ranks with empty ones,
// which the lists then leave out. An encoder runs 1F1B beside it.
Schedule BuildInterleaved(const StageGraph& graph, int micro_batches);

// Two stages a rank, dealt as a V, and backwards in two halves (ZB-V, arXiv 2401.10241 section 6):
// a micro-batch comes back to the rank that it began on, so every rank keeps at most what 1F1B's
// first rank does, and the fill is half of ZB-H1's where F, I and W last equally long. Written for
// 2 P - 1 micro-batches or more: fewer are padded with empty ones. REQUIRES: a chain dealt to the
// ranks as a V with two stages each, behind encoders as in BuildInterleaved().
Schedule BuildZbV(const StageGraph& graph, int micro_batches);

// Forwards alone, for evaluation: a rank takes what is furthest through the stages of all that has
// come. Runs any graph.
Schedule BuildForwards(const StageGraph& graph, int micro_batches);

// A schedule that `parallel.schedule` may name, and what bounds and searches ask of it.
struct ScheduleKind {
  std::string name;
  Schedule (*build)(const StageGraph& graph, int micro_batches) = nullptr;
  // Why it cannot run a graph; "" where it can.
  std::string (*problem)(const StageGraph& graph) = nullptr;
  bool searched = true;           // by a planner; not: another is as fast everywhere and keeps less
  bool overlaps = true;           // ranks work at the same time
  bool forwards_first = false;    // every rank keeps all micro-batches of the step
  bool splits_backwards = false;  // weight gradients fill what a rank would wait
  int fewest_chunks = 1, most_chunks = 1;  // stages of a rank
  Placement placement = Placement::kLoop;

  bool chunked() const { return most_chunks > 1; }
};

// naive, gpipe, 1f1b, zb_h1, interleaved, zb_v
const std::vector<ScheduleKind>& ScheduleKinds();
// nullptr for any other name, which is then a file's.
const ScheduleKind* FindSchedule(const std::string& name);
// What to say about a name that is none: "did you mean '1f1b'?", or "use naive, gpipe, ...".
std::string SuggestSchedule(const std::string& name);
// Throws ConfigError for an unknown name (with the nearest known one), no micro-batches, a broken
// graph, and a graph that the schedule cannot run.
Schedule BuildSchedule(const std::string& name, const StageGraph& graph, int micro_batches);

}  // namespace equipoise
