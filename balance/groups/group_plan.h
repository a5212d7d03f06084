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
  int64_t min_patches = 0, min_tokens = 0;  // isf: a group with one of these is accepted
  // Unit of patches, the rows of a tile or 1: patches of samples and limits are multiples of it.
  // Limits are chosen and groups formed in such units.
  int64_t patch_unit = 1;
  int64_t rounds = 50;       // isf
  int64_t micro_batch = 1;   // samples of a group, for random and length_grouped
  bool pad = false;          // for the same: pad each sample to the longest of its group
  int64_t global_batch = 1;  // groups of a step
  int64_t islands = 1;       // of data ranks, each with a model of its own (DiLoCo)
  LoadCost cost;
  uint64_t seed = 0;

  // The limit on patches in units (tiles, for models that take tiles).
  int64_t limit_units() const { return limits.patches / patch_unit; }
};

// Chooses limits that are 0 from the samples. Q_v of isf+ is the fewest patches with which packs
// are as full as with any number, found by forming groups of some of the samples. Q_v of other
// methods is the patches that Q_t tokens come with on average; isf begins as OmniBal's search does,
// with fewer, since lengths are rounded up to Q_t / 16. Q_v is at least the largest sample's
// patches. min_patches = Q_v, min_tokens = Q_t - Q_t / 32; neither exceeds its limit. REQUIRES:
// limits.tokens > 0.
void ChooseLimits(const SampleList& samples, GroupOptions& options);

// Lower limits to try in turn when `options.limits`, as set by ChooseLimits(), need too much
// memory: first fewer tokens, down to the longest sample's, with Q_v chosen for them; then fewer
// patches only, down to the largest sample's. Each pair holds all samples that `options.limits`
// hold. A limit that is `given` (not 0) is kept. Empty where nothing can be lowered, or where the
// method does not keep to both limits.
std::vector<GroupLimits> LowerLimits(const SampleList& samples, const GroupOptions& options,
                                     const GroupLimits& given);

// Limits for groups of `tokens` tokens, with Q_v chosen for them, in place of `options.limits`, as
// set by ChooseLimits(). Empty where they do not hold all samples that `options.limits` hold, or
// where the method does not keep to both limits. REQUIRES: tokens > 0.
std::optional<GroupLimits> ScaledLimits(const SampleList& samples, const GroupOptions& options,
                                        int64_t tokens);

// The groups of an epoch and their order: entries s * global_batch to (s + 1) * global_batch - 1 of
// `order` are the groups of step s; the last step may be short.
struct EpochGroups {
  SampleGroups groups;
  std::vector<int64_t> order;
  std::vector<MicroBatchLoad> loads;  // as `groups`, not as `order`
  std::vector<int64_t> oversize;      // samples beyond the limits, in no group
  std::vector<IsfRound> rounds;       // isf only
  std::vector<int64_t> carried;       // samples for the next window, in no group

  int64_t size() const { return groups.size(); }
};

// Forms the groups of an epoch. A pure function, so that all ranks form the same. `head`: groups at
// the beginning of the order that complete a step of the previous epoch.
EpochGroups PlanEpoch(std::span<const SampleSize> sizes, const GroupOptions& options, int64_t epoch,
                      int64_t head = 0);

// A part of an epoch's samples that is grouped on its own (balance/groups/epoch_windows.h).
struct EpochWindow {
  int64_t epoch = 0;
  int64_t number = 0;  // of the window in the epoch
  int64_t head = 0;    // groups that complete the open step
  bool last = true;    // false: samples of groups that are not full are carried to the next window
};
// Forms the groups of a window. A group is not full where isf would not accept it, or where it has
// fewer samples than a method with a fixed number; at most an eighth of the samples is carried,
// those of the emptiest groups. An epoch of one window has the groups of PlanEpoch().
EpochGroups PlanWindow(std::span<const SampleSize> sizes, const GroupOptions& options,
                       const EpochWindow& window);

// The groups of one step by micro-batch and data rank, as indices into `step`: micro-batch m of
// rank r is at m * data_ranks + r. isf+ orders them by AssignRows(); other methods keep the order.
// Islands, of as many neighbouring data ranks each, are dealt their groups first, and deal them to
// their ranks: which groups an island has does not depend on the number of its ranks.
std::vector<int64_t> RowsOfStep(std::span<const LayerLoad> step, const GroupOptions& options,
                                int64_t data_ranks);

// Options of BalanceMeter for groups of these options.
BalanceMeter::Options MeterOptions(const GroupOptions& options, int64_t data_ranks);

// Measures the balance of an epoch's steps, from groups that are added window by window.
class EpochMeter {
 public:
  EpochMeter(const GroupOptions& options, int64_t data_ranks);

  // Adds the next groups of the epoch.
  void Add(const EpochGroups& part);
  // The metrics of all steps, after all groups were added; the last step may be short.
  BalanceMetrics Finish();

 private:
  void AddStep();

  GroupOptions options_;
  int64_t data_ranks_;
  BalanceMeter meter_;
  std::vector<MicroBatchLoad> step_;  // groups of the open step
};

}  // namespace equipoise
