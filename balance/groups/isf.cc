#include "balance/groups/isf.h"

#include "balance/groups/numpy_shuffle.h"

namespace equipoise {
namespace {

// Next fit over a random order of `pool`.
SampleGroups SampleRound(std::span<const SampleSize> sizes, const GroupLimits& limits,
                         std::vector<int64_t>& pool, uint32_t seed) {
  NumpyShuffle(seed, pool);
  SampleGroups groups;
  const auto all = std::span<const int64_t>(pool);
  int64_t patches = 0, tokens = 0;
  size_t begin = 0;
  for (size_t i = 0; i < pool.size(); ++i) {
    const SampleSize& size = sizes[static_cast<size_t>(pool[i])];
    patches += size.patches;
    tokens += size.tokens;
    if (patches <= limits.patches && tokens <= limits.tokens) continue;
    groups.Add(all.subspan(begin, i - begin));
    begin = i;
    patches = size.patches;
    tokens = size.tokens;
  }
  if (begin < pool.size()) groups.Add(all.subspan(begin));
  return groups;
}

}  // namespace

Grouping IsfGroups(std::span<const SampleSize> sizes, const IsfOptions& options,
                   std::vector<IsfRound>* report) {
  Grouping result;
  std::vector<int64_t> pool =
      WithinLimits(sizes, Indices(std::ssize(sizes)), options.limits, result.oversize);
  SampleGroups groups = SampleRound(sizes, options.limits, pool, options.seed);
  for (int64_t round = 0; round + 1 < options.rounds && !pool.empty(); ++round) {
    pool.clear();
    const int64_t accepted_before = result.groups.size();
    for (int64_t i = 0; i < groups.size(); ++i) {
      const LayerLoad load = GroupLoad(sizes, groups[i]);
      if (load.patches >= options.min_patches || load.tokens >= options.min_tokens) {
        result.groups.Add(groups[i]);
      } else {
        pool.insert(pool.end(), groups[i].begin(), groups[i].end());
      }
    }
    if (report != nullptr)
      report->push_back({result.groups.size() - accepted_before, std::ssize(pool)});
    // As in the published code, the second round has the seed of the first.
    groups = SampleRound(sizes, options.limits, pool, options.seed + static_cast<uint32_t>(round));
  }
  for (int64_t i = 0; i < groups.size(); ++i) result.groups.Add(groups[i]);
  return result;
}

}  // namespace equipoise
