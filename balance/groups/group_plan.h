#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "balance/groups/group_method.h"
#include "balance/groups/isf.h"
#include "balance/load/balance_metrics.h"
#include "balance/load/load_cost.h"
#include "balance/load/sample_groups.h"

namespace equipoise {

struct GroupOptions {
  GroupMethod method = GroupMethod::kIsfPlus;
  GroupLimits limits;
  int64_t min_patches = 0, min_tokens = 0;  // isf: a group is accepted from here on
  // Samples' patches and all limits are multiples of it: the rows of a tile, or 1. Limits are
  // chosen in such units, and groups are those of samples that count them.
  int64_t patch_unit = 1;
  int64_t rounds = 50;       // isf
  int64_t micro_batch = 1;   // samples of a group; random, length_grouped
  bool pad = false;          // each sample to the longest of its group; likewise
  int64_t global_batch = 1;  // groups of a step
  LoadCost cost;
  uint64_t seed = 0;

  // The limit on patches, counted in units: tiles, where these are cut.
  int64_t limit_units() const { return limits.patches / patch_unit; }
};

// Limits that are 0 are chosen from the samples. Q_v of isf+: as few patches as leave packs as full
// as any number of them would, found by forming groups of some of the samples. Q_v of the others:
// as many as Q_t tokens bring on average; isf starts as OmniBal's search does, with fewer: lengths
// count as rounded up to Q_t / 16. Never below the largest sample's patches. min_patches = Q_v,
// min_tokens = Q_t - Q_t / 32; neither is left above its limit. REQUIRES: limits.tokens > 0.
void ChooseLimits(const SampleList& samples, GroupOptions& options);

// Limits to fall back on where `options.limits`, as ChooseLimits() left them, need too much memory,
// larger ones first: fewer tokens, down to the longest sample's, with the patches that these bring;
// then fewer patches alone, down to the largest sample's. Each pair holds all samples that
// `options.limits` hold. What is `given` (not 0) stays. Empty where nothing can be lowered, or
// where the method does not keep to both limits.
std::vector<GroupLimits> LowerLimits(const SampleList& samples, const GroupOptions& options,
                                     const GroupLimits& given);

// Limits of groups of so many tokens, with the patches that these bring, in place of
// `options.limits`, as ChooseLimits() left them. Absent where they do not hold all samples that
// `options.limits` hold, or where the method does not keep to both limits. REQUIRES: tokens > 0.
std::optional<GroupLimits> ScaledLimits(const SampleList& samples, const GroupOptions& options,
                                        int64_t tokens);

// The groups of an epoch in the order in which steps take them: groups s * global_batch to
// (s + 1) * global_batch - 1 make step s; the last step may be short.
struct EpochGroups {
  SampleGroups groups;
  std::vector<int64_t> order;
  std::vector<MicroBatchLoad> loads;  // of the groups, not in order
  std::vector<int64_t> oversize;      // samples beyond the limits, in no group
  std::vector<IsfRound> rounds;       // isf: what each round left to do
  std::vector<int64_t> carried;       // samples for the next window, in no group

  int64_t size() const { return groups.size(); }
};

// A pure function: every rank makes the same. `head`: groups at the beginning of the order that
// complete a step of the epoch before.
EpochGroups PlanEpoch(std::span<const SampleSize> sizes, const GroupOptions& options, int64_t epoch,
                      int64_t head = 0);

// A part of an epoch's samples that is grouped by itself (balance/groups/epoch_windows.h).
struct EpochWindow {
  int64_t epoch = 0;
  int64_t number = 0;  // of the window in the epoch
  int64_t head = 0;    // groups that complete the step before
  bool last = true;    // false: samples of groups that are not full are handed on to the next
};
// Groups that are not full are those that isf would not accept, of methods with a number of samples
// those with fewer; at most an eighth of the samples is handed on, those of the emptiest groups.
// The one window of an epoch gives PlanEpoch()'s groups.
EpochGroups PlanWindow(std::span<const SampleSize> sizes, const GroupOptions& options,
                       const EpochWindow& window);

// The groups of one step in the order of micro-batch and data rank, as indices into `step`: m of
// rank r is at m * data_ranks + r. isf+ deals them as AssignRows() does, the others in turn.
std::vector<int64_t> RowsOfStep(std::span<const LayerLoad> step, const GroupOptions& options,
                                int64_t data_ranks);

// How such groups are measured over that many data ranks.
BalanceMeter::Options MeterOptions(const GroupOptions& options, int64_t data_ranks);

// Measures an epoch's steps over that many data ranks, from groups that come part by part.
class EpochMeter {
 public:
  EpochMeter(const GroupOptions& options, int64_t data_ranks);

  // The next groups of the epoch, in their order.
  void Add(const EpochGroups& part);
  // After all; the last step may be short.
  BalanceMetrics Finish();

 private:
  void AddStep();

  GroupOptions options_;
  int64_t data_ranks_;
  BalanceMeter meter_;
  std::vector<MicroBatchLoad> step_;  // that is open
};

}  // namespace equipoise
