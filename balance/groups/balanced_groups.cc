#include "balance/groups/balanced_groups.h"

#include <algorithm>

#include "balance/groups/group_exchange.h"
#include "balance/groups/group_queue.h"
#include "balance/groups/isf.h"
#include "balance/load/random.h"
#include "configs/base/error.h"

// The number of groups follows from the sums alone; longest processing time first fills that many
// groups by a bucket queue, regardless of the limits; pairwise exchanges make them equal, and only
// what is still beyond a limit is placed again, by best fit. For few samples, where rounding up the
// number of groups costs most, ISF (OmniBal, arXiv 2407.20761) is tried as well and taken if it
// needs fewer. O(n log n) for the sort; all other steps are linear in samples or in passes x
// samples.

namespace equipoise {
namespace {

// Share of the limit on tokens that is left free for the unevenness after exchanges.
constexpr double kSpareTokens = 1.0 / 512;
constexpr double kJitter = 1.0 / 32;  // samples whose sizes differ by less may be reordered
// Passes of exchanges: few for a million samples, which then take a second, and more for fewer.
constexpr int64_t kFewestPasses = 9, kMostPasses = 60, kVisits = int64_t{12} << 20;
constexpr int64_t kLastParts = 3;       // the last exchanges have 1 / kLastParts of the passes
constexpr int64_t kCompared = 1 << 14;  // most samples for which ISF is tried as well
constexpr int kIndexBits = 32;          // bits of a sort key that hold the sample's index

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

class GroupFiller {
 public:
  GroupFiller(std::span<const SampleSize> sizes, const BalancedGroupsOptions& options)
      : sizes_(sizes),
        limits_(options.limits),
        random_(KeyedRandom(options.seed, static_cast<uint64_t>(options.epoch), 0)) {
    EQUIPOISE_CHECK(limits_.patches > 0 && limits_.tokens > 0, limits_.tokens);
    EQUIPOISE_CHECK(std::ssize(sizes) < (int64_t{1} << (kIndexBits - 1)), sizes.size());
  }

  Grouping Fill();

 private:
  // Sums up the samples and sets the number of groups; false when no sample is within the limits.
  bool Measure();
  // A sample's share of the limits: of patches or of tokens, whichever is larger.
  double Share(const SampleSize& size) const {
    return std::max(size.patches / static_cast<double>(limits_.patches),
                    size.tokens / static_cast<double>(limits_.tokens));
  }
  std::vector<int64_t> LargestFirst();
  void AssignToLeastLoaded();
  std::vector<int64_t> TakeExcess(std::vector<GroupLimits>& loads);
  void PlaceExcess();
  void TakeIsfGroupsIfFewer();
  SampleGroups Collect() const;

  std::span<const SampleSize> sizes_;
  GroupLimits limits_;
  SplitMix random_;
  int64_t samples_ = 0, patches_ = 0, tokens_ = 0;  // sums over samples within the limits
  std::vector<int64_t> oversize_;
  GroupOfSample groups_;
};

Grouping GroupFiller::Fill() {
  if (!Measure()) return {SampleGroups(), std::move(oversize_)};
  const int64_t passes = std::clamp(kVisits / samples_, kFewestPasses, kMostPasses);
  AssignToLeastLoaded();
  ExchangeSamples(sizes_, {limits_, passes, /*keep_limits=*/false}, random_, groups_);
  PlaceExcess();
  if (samples_ <= kCompared) TakeIsfGroupsIfFewer();
  ExchangeSamples(sizes_, {limits_, passes / kLastParts, /*keep_limits=*/true}, random_, groups_);
  return {Collect(), std::move(oversize_)};
}

bool GroupFiller::Measure() {
  groups_.group.assign(sizes_.size(), 0);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (limits_.Hold(sizes_[i])) {
      ++samples_;
      patches_ += sizes_[i].patches;
      tokens_ += sizes_[i].tokens;
    } else {
      oversize_.push_back(static_cast<int64_t>(i));
      groups_.group[i] = -1;
    }
  }
  const double room = static_cast<double>(limits_.tokens) * (1 - kSpareTokens);
  const auto with_spare = static_cast<int64_t>(static_cast<double>(tokens_) / room);
  groups_.groups = std::max({CeilDiv(patches_, limits_.patches), CeilDiv(tokens_, limits_.tokens),
                             with_spare, int64_t{1}});
  return samples_ > 0;
}

// Samples by descending share with jitter: a sort of integers, an inverted share of 31 bits above
// the index, which needs no comparison function and no stable sort.
std::vector<int64_t> GroupFiller::LargestFirst() {
  std::vector<uint64_t> keys;
  keys.reserve(static_cast<size_t>(samples_));
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (groups_.group[i] < 0) continue;
    const double random = static_cast<double>(random_.Next() >> 32) * 0x1p-32;
    const auto share = static_cast<uint64_t>(Share(sizes_[i]) * (1 - kJitter * random) * 0x1p30);
    keys.push_back(((uint64_t{1} << 31) - share) << kIndexBits | i);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int64_t> samples;
  samples.reserve(keys.size());
  for (const uint64_t key : keys) {
    samples.push_back(static_cast<int64_t>(key & ((uint64_t{1} << kIndexBits) - 1)));
  }
  return samples;
}

// Adds each sample to the group with the least load: patches and tokens, each relative to the mean.
// A bucket queue finds that group, up to the width of a bucket, in constant time.
void GroupFiller::AssignToLeastLoaded() {
  constexpr int64_t kBuckets = 8192;
  constexpr double kMostLoad = 3;
  const auto groups = static_cast<double>(groups_.groups);
  const double a_patch = patches_ > 0 ? groups / static_cast<double>(patches_) : 0;
  const double a_token = tokens_ > 0 ? groups / static_cast<double>(tokens_) : 0;
  std::vector<int32_t> next(static_cast<size_t>(groups_.groups), -1);
  std::vector<double> load(static_cast<size_t>(groups_.groups), 0);
  GroupQueue queue(kBuckets + 1, &next);  // the emptiest in the last bucket
  std::vector<int64_t> order = Indices(groups_.groups);
  Shuffle(std::span(order), random_);
  for (const int64_t group : order) queue.Push(kBuckets, group);
  for (const int64_t sample : LargestFirst()) {
    const SampleSize& size = sizes_[static_cast<size_t>(sample)];
    const int64_t group = queue.Pop(queue.Highest());
    groups_.group[static_cast<size_t>(sample)] = static_cast<int32_t>(group);
    double& its_load = load[static_cast<size_t>(group)];
    its_load += size.patches * a_patch + size.tokens * a_token;
    const double room = 1 - std::min(its_load / kMostLoad, 1.0);
    queue.Push(static_cast<int64_t>(room * static_cast<double>(kBuckets)), group);
  }
}

// Removes samples from groups beyond the limits until these hold: the smallest sample that
// suffices, or else the largest.
std::vector<int64_t> GroupFiller::TakeExcess(std::vector<GroupLimits>& loads) {
  std::vector<int64_t> excess;
  const SampleGroups groups = Collect();
  for (int64_t i = 0, group = -1; i < groups.size(); ++i) {
    std::vector<int64_t> members(groups[i].begin(), groups[i].end());
    group = groups_.group[static_cast<size_t>(members.front())];
    GroupLimits& load = loads[static_cast<size_t>(group)];
    if (limits_.patches >= load.patches && limits_.tokens >= load.tokens) continue;
    std::sort(members.begin(), members.end(), [this](int64_t a, int64_t b) {
      const double of_a = Share(sizes_[static_cast<size_t>(a)]);
      const double of_b = Share(sizes_[static_cast<size_t>(b)]);
      return of_a != of_b ? of_a < of_b : a < b;
    });
    while (load.patches > limits_.patches || load.tokens > limits_.tokens) {
      auto out = std::find_if(members.begin(), members.end(), [&](int64_t sample) {
        const SampleSize& size = sizes_[static_cast<size_t>(sample)];
        return load.patches - size.patches <= limits_.patches &&
               load.tokens - size.tokens <= limits_.tokens;
      });
      if (out == members.end()) --out;
      load.patches -= sizes_[static_cast<size_t>(*out)].patches;
      load.tokens -= sizes_[static_cast<size_t>(*out)].tokens;
      excess.push_back(*out);
      members.erase(out);
    }
  }
  return excess;
}

// Best fit decreasing: each removed sample goes to the group with the most tokens that has room.
void GroupFiller::PlaceExcess() {
  constexpr int64_t kPatchLevels = 64, kTokenBuckets = 512;
  std::vector<GroupLimits> loads(static_cast<size_t>(groups_.groups));
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (groups_.group[i] < 0) continue;
    GroupLimits& load = loads[static_cast<size_t>(groups_.group[i])];
    load.patches += sizes_[i].patches;
    load.tokens += sizes_[i].tokens;
  }
  std::vector<int64_t> excess = TakeExcess(loads);
  std::stable_sort(excess.begin(), excess.end(), [this](int64_t a, int64_t b) {
    return Share(sizes_[static_cast<size_t>(a)]) > Share(sizes_[static_cast<size_t>(b)]);
  });
  // A queue for each level of free patches (rounded down), with buckets of tokens (rounded up).
  const int64_t level_patches = CeilDiv(limits_.patches, kPatchLevels);
  const int64_t bucket_tokens = CeilDiv(limits_.tokens, kTokenBuckets);
  std::vector<int32_t> next(loads.size() + excess.size(), -1);
  std::vector<GroupQueue> queues(static_cast<size_t>(limits_.patches / level_patches) + 1,
                                 GroupQueue(kTokenBuckets + 1, &next));
  const auto push = [&](int64_t group) {
    const GroupLimits& load = loads[static_cast<size_t>(group)];
    queues[static_cast<size_t>((limits_.patches - load.patches) / level_patches)].Push(
        CeilDiv(load.tokens, bucket_tokens), group);
  };
  for (int64_t group = 0; group < groups_.groups; ++group) push(group);
  for (const int64_t sample : excess) {
    const SampleSize& size = sizes_[static_cast<size_t>(sample)];
    GroupQueue* fullest = nullptr;
    int64_t bucket = -1;
    for (auto level = static_cast<size_t>(CeilDiv(size.patches, level_patches));
         level < queues.size(); ++level) {
      const int64_t found =
          queues[level].HighestAtMost((limits_.tokens - size.tokens) / bucket_tokens);
      if (found <= bucket) continue;
      fullest = &queues[level];
      bucket = found;
    }
    const int64_t group = fullest != nullptr ? fullest->Pop(bucket) : groups_.groups++;
    if (fullest == nullptr) loads.push_back({});
    loads[static_cast<size_t>(group)].patches += size.patches;
    loads[static_cast<size_t>(group)].tokens += size.tokens;
    groups_.group[static_cast<size_t>(sample)] = static_cast<int32_t>(group);
    push(group);
  }
}

void GroupFiller::TakeIsfGroupsIfFewer() {
  IsfOptions options{limits_, limits_.patches, limits_.tokens - limits_.tokens / 32};
  options.seed = static_cast<uint32_t>(random_.Next());
  const SampleGroups isf = IsfGroups(sizes_, options).groups;
  if (isf.size() >= groups_.groups) return;
  groups_.groups = isf.size();
  for (int64_t i = 0; i < isf.size(); ++i) {
    for (const int64_t sample : isf[i]) {
      groups_.group[static_cast<size_t>(sample)] = static_cast<int32_t>(i);
    }
  }
}

SampleGroups GroupFiller::Collect() const {
  std::vector<int64_t> begins(static_cast<size_t>(groups_.groups) + 1, 0);
  for (const int32_t group : groups_.group) {
    if (group >= 0) ++begins[static_cast<size_t>(group) + 1];
  }
  for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  std::vector<int64_t> members(static_cast<size_t>(samples_)), at(begins.begin(), begins.end() - 1);
  for (size_t sample = 0; sample < sizes_.size(); ++sample) {
    if (groups_.group[sample] < 0) continue;
    int64_t& place = at[static_cast<size_t>(groups_.group[sample])];
    members[static_cast<size_t>(place++)] = static_cast<int64_t>(sample);
  }
  SampleGroups groups;
  groups.Reserve(groups_.groups, std::ssize(members));
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const auto begin = static_cast<size_t>(begins[i]), end = static_cast<size_t>(begins[i + 1]);
    if (begin < end) groups.Add(std::span(members).subspan(begin, end - begin));
  }
  return groups;
}

}  // namespace

Grouping BalancedGroups(std::span<const SampleSize> sizes, const BalancedGroupsOptions& options) {
  return GroupFiller(sizes, options).Fill();
}

}  // namespace equipoise
