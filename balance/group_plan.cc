#include "balance/group_plan.h"

#include <algorithm>
#include <array>

#include "balance/balanced_groups.h"
#include "balance/random.h"
#include "balance/simple_groups.h"
#include "balance/step_deal.h"
#include "configs/error.h"

namespace equipoise {
namespace {

constexpr uint64_t kSampleOrder = 2, kGroupOrder = 3, kIsfSeed = 4;  // purposes of random streams

constexpr int64_t kTokenSteps = 16;  // in which a limit on tokens is lowered

const std::array<const char*, 6> kNames = {"random", "length_grouped", "packed", "knapsack", "isf",
                                           "isf+"};

Grouping FormIsfGroups(std::span<const SampleSize> sizes, const GroupOptions& options,
                       int64_t epoch, std::vector<IsfRound>& rounds) {
  SplitMix random = KeyedRandom(options.seed, static_cast<uint64_t>(epoch), kIsfSeed);
  IsfOptions isf{options.limits, options.min_tiles, options.min_tokens, options.rounds, 0};
  isf.seed = static_cast<uint32_t>(random.Next());
  return IsfGroups(sizes, isf, &rounds);
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

}  // namespace

GroupMethod ParseGroupMethod(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    throw ConfigError("balance.group: '" + name +
                      "' is none of random, length_grouped, packed, knapsack, isf, isf+");
  }
  return static_cast<GroupMethod>(found - kNames.begin());
}

std::string GroupMethodName(GroupMethod method) { return kNames[static_cast<size_t>(method)]; }

bool HasFixedSamples(GroupMethod method) {
  return method == GroupMethod::kRandom || method == GroupMethod::kLengthGrouped;
}

void ChooseLimits(std::span<const SampleSize> sizes, GroupOptions& options) {
  GroupLimits& limits = options.limits;
  EQUIPOISE_CHECK(limits.tokens > 0, "no limit on tokens");
  // OmniBal rounds lengths to 256, and tokens a tile to 16, at Q_t = 4096.
  const bool isf = options.method == GroupMethod::kIsf;
  const int64_t coarse = isf ? std::max<int64_t>(limits.tokens / 16, 1) : 1;
  const int64_t fine = isf ? std::max<int64_t>(limits.tokens / 256, 1) : 1;
  int64_t tiles = 0, tokens = 0, most = 1, count = 0;
  for (const SampleSize& size : sizes) {
    if (size.tokens > limits.tokens) continue;
    tiles += size.tiles;
    tokens += (size.tokens + coarse - 1) / coarse * coarse;
    most = std::max<int64_t>(most, size.tiles);
    ++count;
  }
  if (limits.tiles == 0) {
    const int64_t a_tile = tokens / std::max({tiles, count, int64_t{1}}) + (isf ? 1 : 0);
    limits.tiles = std::max(limits.tokens / std::max<int64_t>(a_tile / fine * fine, 1), most);
  }
  if (options.min_tiles == 0) options.min_tiles = limits.tiles;
  if (options.min_tokens == 0) options.min_tokens = limits.tokens - limits.tokens / 32;
}

std::vector<GroupLimits> LowerLimits(std::span<const SampleSize> sizes, const GroupOptions& options,
                                     const GroupLimits& given) {
  if (HasFixedSamples(options.method) || options.method == GroupMethod::kPacked) return {};
  const GroupLimits& first = options.limits;
  GroupLimits largest{1, 1};
  for (const SampleSize& size : sizes) {
    if (!first.Hold(size)) continue;
    largest.tiles = std::max<int64_t>(largest.tiles, size.tiles);
    largest.tokens = std::max<int64_t>(largest.tokens, size.tokens);
  }
  std::vector<GroupLimits> lower;
  GroupLimits last = first;
  for (int64_t part = kTokenSteps - 1; given.tokens == 0 && last.tokens > largest.tokens; --part) {
    GroupOptions fewer = options;
    fewer.limits = {given.tiles, std::max(first.tokens * part / kTokenSteps, largest.tokens)};
    ChooseLimits(sizes, fewer);
    last = {std::min(fewer.limits.tiles, last.tiles), fewer.limits.tokens};
    lower.push_back(last);
  }
  while (given.tiles == 0 && last.tiles > largest.tiles) {
    --last.tiles;
    lower.push_back(last);
  }
  return lower;
}

EpochGroups PlanEpoch(std::span<const SampleSize> sizes, const GroupOptions& options, int64_t epoch,
                      int64_t head) {
  EpochGroups result;
  Grouping grouping = FormGroups(sizes, options, epoch, result.rounds);
  result.groups = std::move(grouping.groups);
  result.oversize = std::move(grouping.oversize);
  std::vector<LayerLoad> loads;
  for (int64_t i = 0; i < result.size(); ++i) {
    result.loads.push_back(LoadOfGroup(sizes, result.groups[i]));
    loads.push_back(result.loads.back().load);
  }
  if (options.method == GroupMethod::kIsfPlus) {
    result.order =
        DealSteps(loads, {options.global_batch, head, options.cost, options.seed, epoch});
    return result;
  }
  result.order = Indices(result.size());
  if (options.method == GroupMethod::kIsf || options.method == GroupMethod::kKnapsack) {
    SplitMix random = KeyedRandom(options.seed, static_cast<uint64_t>(epoch), kGroupOrder);
    Shuffle(std::span(result.order), random);
  }
  return result;
}

std::vector<int64_t> RowsOfStep(std::span<const LayerLoad> step, const GroupOptions& options,
                                int64_t data_ranks) {
  if (options.method != GroupMethod::kIsfPlus) return Indices(std::ssize(step));
  return DealRows(step, data_ranks, options.cost);
}

int64_t RoomOf(const MicroBatchLoad& one, const GroupOptions& options) {
  return HasFixedSamples(options.method) ? one.longest * one.samples : options.limits.tokens;
}

BalanceMetrics MeasureEpoch(const EpochGroups& epoch, const GroupOptions& options,
                            int64_t data_ranks) {
  BalanceMeter meter({data_ranks, options.cost, HasFixedSamples(options.method)});
  const auto batch = static_cast<size_t>(options.global_batch);
  const auto order = std::span<const int64_t>(epoch.order);
  for (size_t begin = 0; begin < order.size(); begin += batch) {
    const auto groups = order.subspan(begin, std::min(batch, order.size() - begin));
    std::vector<LayerLoad> loads;
    for (const int64_t group : groups)
      loads.push_back(epoch.loads[static_cast<size_t>(group)].load);
    std::vector<MicroBatchLoad> step;
    for (const int64_t place : RowsOfStep(loads, options, data_ranks)) {
      step.push_back(epoch.loads[static_cast<size_t>(groups[static_cast<size_t>(place)])]);
    }
    meter.AddStep(step);
  }
  return meter.metrics();
}

}  // namespace equipoise
