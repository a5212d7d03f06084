#include "balance/groups/group_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "balance/groups/balanced_groups.h"
#include "balance/groups/simple_groups.h"
#include "balance/groups/step_assignment.h"
#include "balance/load/random.h"
#include "configs/base/error.h"

namespace equipoise {
namespace {

// Purposes of random streams; kWindowSeed and above: of the windows after the first.
constexpr uint64_t kSampleOrder = 2, kGroupOrder = 3, kIsfSeed = 4, kWindowSeed = 1 << 16;
constexpr int64_t kCarriedParts = 8;  // at most 1 / kCarriedParts of a window's samples is carried

constexpr int64_t kTokenSteps = 16;  // steps in which a limit on tokens is lowered

Grouping FormIsfGroups(std::span<const SampleSize> sizes, const GroupOptions& options,
                       int64_t epoch, std::vector<IsfRound>& rounds) {
  SplitMix random = KeyedRandom(options.seed, static_cast<uint64_t>(epoch), kIsfSeed);
  IsfOptions isf{options.limits, options.min_patches, options.min_tokens, options.rounds, 0};
  isf.seed = static_cast<uint32_t>(random.Next());
  return IsfGroups(sizes, isf, &rounds);
}

// Patches are counted in units from here on. In tiles, sums, means and shares do not depend on the
// rows of a tile, not even in rounding.
SampleSize InUnits(SampleSize size, int64_t unit) {
  EQUIPOISE_CHECK(size.patches % unit == 0, size.patches, " patches in units of ", unit);
  size.patches = static_cast<int32_t>(size.patches / unit);
  return size;
}

std::vector<SampleSize> InUnits(std::span<const SampleSize> sizes, int64_t unit) {
  std::vector<SampleSize> counted;
  counted.reserve(sizes.size());
  for (const SampleSize& size : sizes) counted.push_back(InUnits(size, unit));
  return counted;
}

SampleList InUnits(const SampleList& samples, int64_t unit) {
  return {samples.size, [&samples, unit](int64_t place) {
            std::optional<SampleSize> size = samples.size_at(place);
            if (size) size = InUnits(*size, unit);
            return size;
          }};
}

GroupOptions InUnits(GroupOptions options) {
  EQUIPOISE_CHECK(options.limits.patches % options.patch_unit == 0, options.limits.patches);
  options.limits.patches /= options.patch_unit;
  options.min_patches /= options.patch_unit;
  options.patch_unit = 1;
  return options;
}

// Standard deviation / mean of the tokens of the groups that ISF accepts, for some of the samples.
// Groups that remain after its last round are left out: their share falls with the number of
// samples.
double IsfTokenSpread(std::span<const SampleSize> sizes, const GroupOptions& options) {
  constexpr int64_t kMostSamples = 1 << 14;
  const int64_t count = std::min(std::ssize(sizes), kMostSamples);
  std::vector<SampleSize> some;
  for (int64_t i = 0; i < count; ++i) {
    some.push_back(sizes[static_cast<size_t>(std::ssize(sizes) * i / count)]);
  }
  std::vector<IsfRound> rounds;
  const SampleGroups groups = FormIsfGroups(some, options, 0, rounds).groups;
  double n = 0, sum = 0, squares = 0;
  for (int64_t i = 0; i < groups.size(); ++i) {
    const LayerLoad load = GroupLoad(some, groups[i]);
    if (load.patches < options.min_patches && load.tokens < options.min_tokens) continue;
    const auto tokens = static_cast<double>(load.tokens);
    sum += tokens;
    squares += tokens * tokens;
    ++n;
  }
  if (sum == 0) return std::numeric_limits<double>::infinity();
  return std::sqrt(std::max(squares * n - sum * sum, 0.0)) / sum;
}

Grouping FormGroups(std::span<const SampleSize> sizes, const GroupOptions& options, int64_t epoch,
                    std::vector<IsfRound>& rounds) {
  if (options.method == GroupMethod::kIsfPlus)
    return BalancedGroups(sizes, {options.limits, options.seed, epoch});
  if (options.method == GroupMethod::kIsf) return FormIsfGroups(sizes, options, epoch, rounds);
  Grouping result;
  std::vector<int64_t> order =
      WithinLimits(sizes, Indices(std::ssize(sizes)), options.limits, result.oversize);
  SplitMix random = KeyedRandom(options.seed, static_cast<uint64_t>(epoch), kSampleOrder);
  Shuffle(std::span(order), random);
  switch (options.method) {
    case GroupMethod::kRandom:
      result.groups = RandomGroups(order, options.micro_batch);
      break;
    case GroupMethod::kLengthGrouped:
      result.groups =
          LengthGroupedGroups(sizes, order, {options.micro_batch, options.global_batch});
      break;
    case GroupMethod::kPacked:
      result.groups = PackedGroups(sizes, order, options.limits.tokens);
      break;
    default:
      result.groups = KnapsackGroups(sizes, order, options.limits);
  }
  return result;
}

// Fullness of a group, and whether it suffices.
struct Fullness {
  double share = 0;
  bool full = false;
};

Fullness FullnessOf(const LayerLoad& load, int64_t samples, const GroupOptions& options) {
  const GroupLimits& limits = options.limits;
  if (HasFixedSamples(options.method)) {
    return {static_cast<double>(samples), samples >= options.micro_batch};
  }
  const double patches = static_cast<double>(load.patches) / static_cast<double>(limits.patches);
  const double tokens = static_cast<double>(load.tokens) / static_cast<double>(limits.tokens);
  const bool patch_bound = options.method != GroupMethod::kPacked;
  return {
      patch_bound ? std::max(patches, tokens) : tokens,
      load.tokens >= options.min_tokens || (patch_bound && load.patches >= options.min_patches)};
}

// Removes groups that are not full from `groups`; returns their samples.
std::vector<int64_t> TakeUnfilled(std::span<const SampleSize> sizes, const GroupOptions& options,
                                  SampleGroups& groups) {
  std::vector<std::pair<double, int64_t>> unfilled;
  for (int64_t i = 0; i < groups.size(); ++i) {
    const Fullness one = FullnessOf(GroupLoad(sizes, groups[i]), std::ssize(groups[i]), options);
    if (!one.full) unfilled.emplace_back(one.share, i);
  }
  std::sort(unfilled.begin(), unfilled.end());
  std::vector<int64_t> taken;
  std::vector<bool> stays(static_cast<size_t>(groups.size()), true);
  for (const auto& [share, group] : unfilled) {
    if (std::ssize(taken) + std::ssize(groups[group]) > groups.num_samples() / kCarriedParts) break;
    taken.insert(taken.end(), groups[group].begin(), groups[group].end());
    stays[static_cast<size_t>(group)] = false;
  }
  SampleGroups rest;
  for (int64_t i = 0; i < groups.size(); ++i) {
    if (stays[static_cast<size_t>(i)]) rest.Add(groups[i]);
  }
  groups = std::move(rest);
  return taken;
}

// The most patches and the most tokens of a sample within the limits, at least a unit and 1.
GroupLimits LargestHeld(const SampleList& samples, const GroupOptions& options) {
  GroupLimits largest{options.patch_unit, 1};
  for (int64_t i = 0; i < samples.size; ++i) {
    const std::optional<SampleSize> size = samples.size_at(i);
    if (!size || !options.limits.Hold(*size)) continue;
    largest.patches = std::max<int64_t>(largest.patches, size->patches);
    largest.tokens = std::max<int64_t>(largest.tokens, size->tokens);
  }
  return largest;
}

// Sums over the samples within a limit on tokens.
struct SampleSums {
  int64_t samples = 0, patches = 0, tokens = 0, most_patches = 1;
};

// Sums over the samples of at most `most_tokens`; tokens are rounded up to multiples of `part`.
SampleSums SumOf(const SampleList& samples, int64_t most_tokens, int64_t part) {
  SampleSums sums;
  for (int64_t i = 0; i < samples.size; ++i) {
    const std::optional<SampleSize> size = samples.size_at(i);
    if (!size || size->tokens > most_tokens) continue;
    ++sums.samples;
    sums.patches += size->patches;
    sums.tokens += (size->tokens + part - 1) / part * part;
    sums.most_patches = std::max<int64_t>(sums.most_patches, size->patches);
  }
  return sums;
}

// Units that `tokens` tokens come with on average. For isf as OmniBal's search begins: it rounds
// lengths to 256, and tokens per tile to 16, at Q_t = 4096.
int64_t AverageUnits(const SampleList& samples, int64_t tokens, GroupMethod method) {
  const bool isf = method == GroupMethod::kIsf;
  const int64_t coarse = isf ? std::max<int64_t>(tokens / 16, 1) : 1;
  const int64_t fine = isf ? std::max<int64_t>(tokens / 256, 1) : 1;
  const SampleSums sums = SumOf(samples, tokens, coarse);
  const int64_t a_patch =
      sums.tokens / std::max({sums.patches, sums.samples, int64_t{1}}) + (isf ? 1 : 0);
  return std::max(tokens / std::max<int64_t>(a_patch / fine * fine, 1), sums.most_patches);
}

// The fewest units with which isf+ forms at most 1/256 more groups than without a limit. Found by
// doubling steps, then bisection.
int64_t FewestUnits(const SampleList& samples, int64_t tokens) {
  constexpr int64_t kMostSamples = 1 << 13;
  constexpr double kMoreGroups = 1.0 / 256;
  const int64_t count = std::min(samples.size, kMostSamples);
  std::vector<SampleSize> some;
  SampleSums sums;
  for (int64_t i = 0; i < count; ++i) {
    const std::optional<SampleSize> size = samples.size_at(samples.size * i / count);
    if (!size || size->tokens > tokens) continue;
    some.push_back(*size);
    sums.patches += size->patches;
    sums.tokens += size->tokens;
  }
  const auto groups = [&](int64_t patches) {
    return static_cast<double>(BalancedGroups(some, {{patches, tokens}, 0, 0}).groups.size());
  };
  const int64_t most_patches = SumOf(samples, tokens, 1).most_patches;
  if (some.empty()) return most_patches;
  const int64_t unlimited = sums.patches + 1;
  const double enough = std::floor(groups(unlimited) * (1 + kMoreGroups));
  int64_t low = std::max(sums.patches * tokens / std::max<int64_t>(sums.tokens, 1), most_patches);
  if (low >= unlimited || groups(low) <= enough) return low;
  // Invariant: `low` is too few, `high` is enough.
  int64_t high = unlimited;
  for (int64_t step = 1; low + step < high; step *= 2) {
    if (groups(low + step) <= enough) {
      high = low + step;
    } else {
      low += step;
    }
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (groups(middle) <= enough ? high : low) = middle;
  }
  return high;
}

}  // namespace

void ChooseLimits(const SampleList& samples, GroupOptions& options) {
  GroupLimits& limits = options.limits;
  EQUIPOISE_CHECK(limits.tokens > 0, "no limit on tokens");
  if (limits.patches == 0) {
    const SampleList counted = InUnits(samples, options.patch_unit);
    limits.patches =
        options.patch_unit * (options.method == GroupMethod::kIsfPlus
                                  ? FewestUnits(counted, limits.tokens)
                                  : AverageUnits(counted, limits.tokens, options.method));
  }
  if (options.min_patches == 0) options.min_patches = limits.patches;
  if (options.min_tokens == 0) options.min_tokens = limits.tokens - limits.tokens / 32;
  // A limit may have been lowered since they were set.
  options.min_patches = std::min(options.min_patches, limits.patches);
  options.min_tokens = std::min(options.min_tokens, limits.tokens);
}

std::vector<GroupLimits> LowerLimits(const SampleList& samples, const GroupOptions& options,
                                     const GroupLimits& given) {
  if (!KeepsBothLimits(options.method)) return {};
  const GroupLimits& first = options.limits;
  const GroupLimits largest = LargestHeld(samples, options);
  std::vector<GroupLimits> lower;
  GroupLimits last = first;
  for (int64_t part = kTokenSteps - 1; given.tokens == 0 && last.tokens > largest.tokens; --part) {
    GroupOptions fewer = options;
    fewer.limits = {given.patches, std::max(first.tokens * part / kTokenSteps, largest.tokens)};
    ChooseLimits(samples, fewer);
    last = {std::min(fewer.limits.patches, last.patches), fewer.limits.tokens};
    lower.push_back(last);
  }
  while (given.patches == 0 && last.patches > largest.patches) {
    last.patches = std::max(last.patches - options.patch_unit, largest.patches);
    lower.push_back(last);
  }
  return lower;
}

std::optional<GroupLimits> ScaledLimits(const SampleList& samples, const GroupOptions& options,
                                        int64_t tokens) {
  if (!KeepsBothLimits(options.method)) return std::nullopt;
  const GroupLimits largest = LargestHeld(samples, options);
  GroupOptions scaled = options;
  scaled.limits = {0, tokens};
  ChooseLimits(samples, scaled);
  if (largest.patches > scaled.limits.patches || largest.tokens > tokens) return std::nullopt;
  return scaled.limits;
}

EpochGroups PlanWindow(std::span<const SampleSize> sizes, const GroupOptions& given,
                       const EpochWindow& window) {
  const auto epoch = static_cast<uint64_t>(window.epoch);
  GroupOptions options = given;
  if (window.number > 0) {
    const auto purpose = kWindowSeed + static_cast<uint64_t>(window.number);
    options.seed = KeyedRandom(given.seed, epoch, purpose).Next();
  }
  EpochGroups result;
  const std::vector<SampleSize> counted = InUnits(sizes, options.patch_unit);
  const GroupOptions in_units = InUnits(options);
  Grouping grouping = FormGroups(counted, in_units, window.epoch, result.rounds);
  if (!window.last) result.carried = TakeUnfilled(counted, in_units, grouping.groups);
  result.groups = std::move(grouping.groups);
  result.oversize = std::move(grouping.oversize);
  std::vector<LayerLoad> loads;
  for (int64_t i = 0; i < result.size(); ++i) {
    result.loads.push_back(LoadOfGroup(sizes, result.groups[i]));
    loads.push_back(result.loads.back().load);
  }
  if (options.method == GroupMethod::kIsfPlus) {
    result.order =
        AssignSteps(loads, {options.global_batch, window.head, options.cost, options.seed,
                            window.epoch, IsfTokenSpread(counted, in_units)});
    return result;
  }
  result.order = Indices(result.size());
  if (options.method == GroupMethod::kIsf || options.method == GroupMethod::kKnapsack) {
    SplitMix random = KeyedRandom(options.seed, epoch, kGroupOrder);
    Shuffle(std::span(result.order), random);
  }
  return result;
}

EpochGroups PlanEpoch(std::span<const SampleSize> sizes, const GroupOptions& options, int64_t epoch,
                      int64_t head) {
  return PlanWindow(sizes, options, {epoch, /*number=*/0, head, /*last=*/true});
}

namespace {

std::vector<int64_t> Dealt(std::span<const LayerLoad> groups, const GroupOptions& options,
                           int64_t ranks) {
  if (options.method != GroupMethod::kIsfPlus) return Indices(std::ssize(groups));
  return AssignRows(groups, ranks, options.cost);
}

}  // namespace

std::vector<int64_t> RowsOfStep(std::span<const LayerLoad> step, const GroupOptions& options,
                                int64_t data_ranks) {
  const int64_t islands = options.islands, count = std::ssize(step);
  // The last step of an epoch may be short: it is measured, but never run.
  if (islands == 1 || data_ranks % islands != 0 || count % data_ranks != 0)
    return Dealt(step, options, data_ranks);
  const int64_t own = data_ranks / islands;  // data ranks of an island
  const std::vector<int64_t> of_islands = Dealt(step, options, islands);
  std::vector<int64_t> rows(static_cast<size_t>(count));
  for (int64_t island = 0; island < islands; ++island) {
    std::vector<int64_t> groups;
    std::vector<LayerLoad> loads;
    for (int64_t i = island; i < count; i += islands) {
      groups.push_back(of_islands[static_cast<size_t>(i)]);
      loads.push_back(step[static_cast<size_t>(groups.back())]);
    }
    const std::vector<int64_t> of_ranks = Dealt(loads, options, own);
    for (int64_t i = 0; i < std::ssize(of_ranks); ++i) {
      const int64_t place = i / own * data_ranks + island * own + i % own;
      rows[static_cast<size_t>(place)] =
          groups[static_cast<size_t>(of_ranks[static_cast<size_t>(i)])];
    }
  }
  return rows;
}

BalanceMeter::Options MeterOptions(const GroupOptions& options, int64_t data_ranks) {
  const int64_t room = HasFixedSamples(options.method) ? 0 : options.limits.tokens;
  return {data_ranks, options.cost, options.pad, room};
}

EpochMeter::EpochMeter(const GroupOptions& options, int64_t data_ranks)
    : options_(options), data_ranks_(data_ranks), meter_(MeterOptions(options, data_ranks)) {}

void EpochMeter::Add(const EpochGroups& part) {
  for (const int64_t group : part.order) {
    step_.push_back(part.loads[static_cast<size_t>(group)]);
    if (std::ssize(step_) == options_.global_batch) AddStep();
  }
}

void EpochMeter::AddStep() {
  std::vector<LayerLoad> loads;
  loads.reserve(step_.size());
  for (const MicroBatchLoad& one : step_) loads.push_back(one.load);
  std::vector<MicroBatchLoad> rows;
  for (const int64_t index : RowsOfStep(loads, options_, data_ranks_)) {
    rows.push_back(step_[static_cast<size_t>(index)]);
  }
  meter_.AddStep(rows);
  step_.clear();
}

BalanceMetrics EpochMeter::Finish() {
  if (!step_.empty()) AddStep();
  return meter_.metrics();
}

}  // namespace equipoise
