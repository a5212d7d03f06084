#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/enum_names.h"
#include "parallel/mesh.h"
#include "parallel/timeline.h"

namespace equipoise {

// Why a rank does not compute. The names of Optimus' table 1 (arXiv 2408.03505), whose `PP other`
// holds imbalance too; here that is told apart, by what makes it.
enum class IdleCause : uint8_t {
  kDataWait,       // a loader is behind: of this rank, or of the one that it waits for
  kWarmUp,         // before the first pass
  kCoolDown,       // after the last one, until the last rank has ended its
  kPipelineOther,  // between two passes: dependencies, transfers
  kUnevenStages,   // ranks of one pipeline have less to do than its busiest
  kUnevenData,     // a data rank has less to do than the busiest
  kSlowRank,       // a rank takes longer than others do for as much work
  kReduceScatter,  // gradients are summed over the data ranks, and no pass hides it
  kAllGather,      // weights are gathered: updated ones, or for a pass (ZeRO 3)
  kTensor,         // sums over tensor ranks inside layers
  kContext,        // context ranks exchange attention's heads inside layers
  kOuterStep,      // islands meet (train.diloco)
  kCheckpoint,     // saving
  kHost,           // everything else: agreement of the ranks, evaluation, logs, gaps between ops
};

constexpr auto NamesOf(IdleCause) {
  return std::to_array<EnumName<IdleCause>>({{IdleCause::kDataWait, "data wait"},
                                             {IdleCause::kWarmUp, "PP warm-up"},
                                             {IdleCause::kCoolDown, "PP cool-down"},
                                             {IdleCause::kPipelineOther, "PP other"},
                                             {IdleCause::kUnevenStages, "imbalance: stages"},
                                             {IdleCause::kUnevenData, "imbalance: data ranks"},
                                             {IdleCause::kSlowRank, "imbalance: slow rank"},
                                             {IdleCause::kReduceScatter, "DP reduce-scatter"},
                                             {IdleCause::kAllGather, "DP all-gather"},
                                             {IdleCause::kTensor, "TP"},
                                             {IdleCause::kContext, "CP"},
                                             {IdleCause::kOuterStep, "outer steps"},
                                             {IdleCause::kCheckpoint, "checkpoint"},
                                             {IdleCause::kHost, "host"}});
}
inline constexpr size_t kIdleCauses = NamesOf(IdleCause()).size();

// Seconds of one step of a rank.
struct RankIdle {
  double compute_s = 0;  // of passes
  double update_s = 0;   // of the optimizer
  std::array<double, kIdleCauses> idle_s = {};

  double& operator[](IdleCause cause) { return idle_s[static_cast<size_t>(cause)]; }
  double operator[](IdleCause cause) const { return idle_s[static_cast<size_t>(cause)]; }
  double idle() const;
};

// Where the time of a step goes. On every rank computing, updating and the idle seconds add up to
// `step_s`.
struct IdleTable {
  double step_s = 0;
  int steps = 1;                // over which it is a mean
  std::vector<RankIdle> ranks;  // [rank]
  int slowest = -1;     // the rank that is slow for its work, where kSlowRank has any seconds
  double slowdown = 1;  // and how many times as long as others it takes

  // The mean over the ranks.
  double Total(IdleCause cause) const;
  // Causes that have at least `share` of the step, the largest first.
  std::vector<IdleCause> Largest(double share = 0) const;
};

// The steps of a timeline, in order: by the spans of lane "step", which a run records, or all of it
// where there are none. Spans outside of the steps are left out.
struct TracedStep {
  double start_s = 0, end_s = 0;
  Timeline spans;
};
std::vector<TracedStep> StepsOf(const Timeline& timeline);

// Attributes the idle time of a step, whether measured or simulated. A rank that waits has the
// cause of the rank for which it waits, over as many ranks as that takes: if a loader is behind,
// all ranks wait for data. The seconds in which a rank would wait less if it had as much to do as
// the busiest are imbalance, taken from PP other, cool-down and warm-up in this order. `work_s`:
// predicted seconds of each rank's passes, of any scale; empty: unknown, and no rank is then told
// to be slow.
IdleTable AttributeIdle(const TracedStep& step, const Mesh& mesh,
                        const std::vector<double>& work_s = {});

// The mean of several steps' tables. REQUIRES: one at least, of the same ranks.
IdleTable MeanOf(const std::vector<IdleTable>& tables);

}  // namespace equipoise
