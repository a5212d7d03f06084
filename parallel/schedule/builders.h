#pragma once

#include <string>
#include <vector>

#include "parallel/placement.h"
#include "parallel/schedule/schedule.h"

namespace equipoise {

// Builders of the published pipeline schedules. A builder emits only compute ops (F and B, or I and
// W; V and U for encoder stages), for every stage and micro-batch; CompleteSchedule() of passes.h
// adds the rest. Names are those of `parallel.schedule`. REQUIRES of all: M >= 1 micro-batches and
// a graph that CheckGraph() accepts. Notation: P pipeline ranks, M micro-batches.

// Naive model parallelism: one micro-batch after the other, forward and backward through all
// stages. Runs any graph.
Schedule BuildNaive(const StageGraph& graph, int micro_batches);
// GPipe (arXiv 1811.06965): all forwards, then all backwards, both ascending. Runs any graph; a
// rank passes a micro-batch through all its stages before the next.
Schedule BuildGPipe(const StageGraph& graph, int micro_batches);
// 1F1B (PipeDream-Flush, arXiv 2006.09503): a rank with d ranks after it on the longest path to the
// loss runs min(d, M) warm-up forwards, then one forward and one backward in turn. An encoder chain
// is deeper than the LLM stage that it feeds by its length, and runs that many more ahead (as in
// Cornstarch, arXiv 2503.11367). Stages that share a rank run one after the other.
// REQUIRES: no path through the stages returns to a rank that it has left.
Schedule Build1F1B(const StageGraph& graph, int micro_batches);
// ZB-H1 (arXiv 2401.10241, section 2.1): 1F1B with split backwards. The input gradient I runs at
// once, since the rank before waits for it; the weight gradient W is delayed by one micro-batch for
// each rank in front, so that it fills the cool-down bubble of 1F1B. No rank keeps more
// micro-batches than the first rank of 1F1B. REQUIRES: as 1F1B; an encoder's backwards stay whole.
Schedule BuildZbH1(const StageGraph& graph, int micro_batches);
// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473, section 2.2): each rank runs several chunks
// (virtual stages), which divides the bubble by their number. M is padded to a multiple of P with
// empty micro-batches, which the lists leave out. REQUIRES: a chain assigned to the ranks round
// robin, the same number of stages on each, after encoders, if any, with one rank each: encoder s
// is stage s on rank s. Encoders run 1F1B.
Schedule BuildInterleaved(const StageGraph& graph, int micro_batches);

// ZB-V (arXiv 2401.10241, section 6): two chunks a rank, placed as a V, and split backwards. A
// micro-batch returns to the rank that it began on, so every rank keeps at most what the first rank
// of 1F1B does, and the warm-up is half of ZB-H1's where F, I and W take equally long. Stated for M
// >= 2 P - 1: fewer are padded with empty ones. REQUIRES: a chain placed on the ranks as a V with
// two stages each, after encoders as in BuildInterleaved().
Schedule BuildZbV(const StageGraph& graph, int micro_batches);

// Forwards only, for evaluation: of the micro-batches that have arrived, a rank takes the one that
// is furthest through the stages. Runs any graph.
Schedule BuildForwards(const StageGraph& graph, int micro_batches);

// A schedule that `parallel.schedule` may name, with the properties that planning asks for.
struct ScheduleKind {
  std::string name;
  Schedule (*build)(const StageGraph& graph, int micro_batches) = nullptr;
  // Why it cannot run a graph; "" where it can.
  std::string (*problem)(const StageGraph& graph) = nullptr;
  // By the planner; false: another is as fast and keeps less, or it trains otherwise.
  bool searched = true;
  bool overlaps = true;                    // ranks work at the same time
  bool forwards_first = false;             // every rank keeps all micro-batches of the step
  bool splits_backwards = false;           // weight gradients fill the bubbles (zero bubble)
  bool delays_updates = false;             // gradients are those of the weights one update ago
  int fewest_chunks = 1, most_chunks = 1;  // stages of a rank
  Placement placement = Placement::kLoop;

  bool chunked() const { return most_chunks > 1; }
};

// All schedules: naive, gpipe, 1f1b, zb_h1, interleaved, zb_v, pipedream_2bw.
const std::vector<ScheduleKind>& ScheduleKinds();
// The schedule of that name; nullptr for any other, which then names a file.
const ScheduleKind* FindSchedule(const std::string& name);
// Whether the schedule of that name delays updates; false for a file.
bool DelaysUpdates(const std::string& name);
// Advice for an unknown name: "did you mean '1f1b'?", or "use naive, gpipe, ...".
std::string SuggestSchedule(const std::string& name);
// Builds a schedule by name. Throws ConfigError for an unknown name (with the nearest known one),
// no micro-batches, an invalid graph, and a graph that the schedule cannot run.
Schedule BuildSchedule(const std::string& name, const StageGraph& graph, int micro_batches);

}  // namespace equipoise
