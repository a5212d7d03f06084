#include "balance/balanced_groups.h"

#include <algorithm>

#include "balance/group_queue.h"
#include "balance/random.h"
#include "configs/error.h"

namespace equipoise {
namespace {

// Samples whose tokens differ by less than this part of Q_t may change places.
constexpr int64_t kJitterParts = 32;
constexpr int64_t kSmallParts = 9;  // a sample is small up to this part of a group
constexpr int64_t kTokenBuckets = 512;
constexpr int kShareBits = 12, kTokenBits = 25, kSampleBits = 27;  // of a sort key

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

class GroupFiller {
 public:
  GroupFiller(std::span<const SampleSize> sizes, const BalancedGroupsOptions& options)
      : sizes_(sizes), options_(options), limits_(options.limits) {
    EQUIPOISE_CHECK(limits_.tokens > 0 && limits_.tokens < (1 << (kTokenBits - 1)), limits_.tokens);
    EQUIPOISE_CHECK(std::ssize(sizes) < (1 << kSampleBits), sizes.size());
  }

  Grouping Fill();

 private:
  struct OpenGroup {
    int32_t tiles_left, share_left, tokens;
  };
  // A bucket of a queue; -1: no group has room.
  struct Slot {
    int64_t level = -1, bucket = -1;
  };

  int64_t Share(const SampleSize& size) const {
    return std::max<int64_t>(size.tiles, size.tokens * limits_.tiles / limits_.tokens);
  }
  bool IsLarge(const SampleSize& size) const {
    return Share(size) > std::max<int64_t>(1, limits_.tiles / kSmallParts);
  }
  int64_t Bucket(int64_t tokens) const { return tokens / bucket_tokens_; }
  // The last bucket of tokens all of whose groups have room for the sample's; may be -1.
  int64_t LastBucketWithRoom(const SampleSize& size) const {
    return Bucket(limits_.tokens - size.tokens + 1) - 1;
  }
  const SampleSize& SizeAt(size_t place) const { return sizes_[SampleAt(place)]; }
  size_t SampleAt(size_t place) const { return keys_[place] & ((1 << kSampleBits) - 1); }

  // Looks at every sample once; false when none is within the limits.
  bool Measure();
  void SortBySize();
  // Returns the place of the first sample that is not large.
  size_t PlaceLarge();
  void PlaceSmall(size_t first);
  void OpenWhatSmallSamplesNeed(size_t first);
  int64_t Open();
  OpenGroup& Put(size_t place, int64_t group);
  void ResetQueues();
  Slot Emptiest(const SampleSize& size, double mean) const;
  Slot Fullest(const SampleSize& size) const;
  // Takes the group of a slot out of its queue, or opens one.
  int64_t Take(const Slot& slot);
  SampleGroups Collect() const;

  std::span<const SampleSize> sizes_;
  BalancedGroupsOptions options_;
  GroupLimits limits_;  // tiles: no more than there are
  int64_t bucket_tokens_ = 1;
  bool token_bound_ = false;  // the sum of tokens asks for more groups than that of tiles
  std::vector<int64_t> oversize_;
  std::vector<uint64_t> keys_;     // share, tokens, sample: sorted
  std::vector<int32_t> group_of_;  // by sample; -1: oversize
  std::vector<OpenGroup> groups_;
  // Large samples: by share left, bucket by tokens. Small ones: by tiles left, bucket by tokens or,
  // where the emptiest is sought, by the room for tokens.
  std::vector<GroupQueue> queues_;
  std::vector<int32_t> next_;  // of the queues
};

Grouping GroupFiller::Fill() {
  if (!Measure()) return {SampleGroups(), std::move(oversize_)};
  SortBySize();
  PlaceSmall(PlaceLarge());
  return {Collect(), std::move(oversize_)};
}

bool GroupFiller::Measure() {
  int64_t tiles = 0, tokens = 0, most_tiles = 0;
  group_of_.assign(sizes_.size(), 0);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (limits_.Hold(sizes_[i])) {
      tiles += sizes_[i].tiles;
      tokens += sizes_[i].tokens;
      most_tiles = std::max<int64_t>(most_tiles, sizes_[i].tiles);
    } else {
      oversize_.push_back(static_cast<int64_t>(i));
      group_of_[i] = -1;
    }
  }
  if (oversize_.size() == sizes_.size()) return false;
  // Without pictures there is one tile to a group, which no sample takes.
  limits_.tiles = std::min(limits_.tiles, std::max<int64_t>(tiles, 1));
  EQUIPOISE_CHECK(limits_.tiles < (1 << kShareBits), limits_.tiles);
  bucket_tokens_ = limits_.tokens / kTokenBuckets + 1;
  const int64_t for_tiles = CeilDiv(tiles, limits_.tiles);
  const int64_t for_tokens = CeilDiv(tokens, limits_.tokens);
  const int64_t groups = std::max({for_tiles, for_tokens, int64_t{1}});
  token_bound_ = for_tokens > for_tiles;
  const auto all = static_cast<int32_t>(limits_.tiles);
  groups_.assign(static_cast<size_t>(groups), {all, all, 0});
  return true;
}

void GroupFiller::SortBySize() {
  SplitMix random = KeyedRandom(options_.seed, static_cast<uint64_t>(options_.epoch), 0);
  const int64_t scale = (int64_t{1} << (kTokenBits - 1)) / limits_.tokens;
  const uint64_t jitter =
      static_cast<uint64_t>(std::max<int64_t>(limits_.tokens * scale / kJitterParts, 1));
  keys_.reserve(sizes_.size() - oversize_.size());
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (group_of_[i] < 0) continue;
    const auto share = static_cast<uint64_t>(Share(sizes_[i]));
    uint64_t tokens = static_cast<uint64_t>(sizes_[i].tokens * scale);
    tokens += (random.Next() >> 32) * jitter >> 32;
    constexpr uint64_t kMostTokens = (1 << kTokenBits) - 1, kMostShare = (1 << kShareBits) - 1;
    const bool large = IsLarge(sizes_[i]);
    const uint64_t order = large ? tokens : kMostTokens - tokens;
    keys_.push_back(((kMostShare - (large ? share : 0)) << kTokenBits | order) << kSampleBits | i);
  }
  std::sort(keys_.begin(), keys_.end());
}

int64_t GroupFiller::Open() {
  const auto all = static_cast<int32_t>(limits_.tiles);
  groups_.push_back({all, all, 0});
  next_.push_back(-1);
  return std::ssize(groups_) - 1;
}

GroupFiller::OpenGroup& GroupFiller::Put(size_t place, int64_t group) {
  const SampleSize& size = SizeAt(place);
  OpenGroup& open = groups_[static_cast<size_t>(group)];
  open.tiles_left -= size.tiles;
  open.share_left =
      std::clamp<int32_t>(open.share_left - static_cast<int32_t>(Share(size)), 0, open.tiles_left);
  open.tokens += size.tokens;
  group_of_[SampleAt(place)] = static_cast<int32_t>(group);
  return open;
}

void GroupFiller::ResetQueues() {
  next_.assign(groups_.size(), -1);
  queues_.assign(static_cast<size_t>(limits_.tiles) + 1,
                 GroupQueue(Bucket(limits_.tokens) + 1, &next_));
}

int64_t GroupFiller::Take(const Slot& slot) {
  return slot.bucket < 0 ? Open() : queues_[static_cast<size_t>(slot.level)].Pop(slot.bucket);
}

size_t GroupFiller::PlaceLarge() {
  ResetQueues();
  for (int64_t i = 0; i < std::ssize(groups_); ++i) queues_.back().Push(0, i);
  for (size_t place = 0; place < keys_.size(); ++place) {
    const SampleSize& size = SizeAt(place);
    if (!IsLarge(size)) return place;
    const int64_t share = Share(size);
    Slot slot = {limits_.tiles, -1};
    for (; slot.level >= share; --slot.level) {
      slot.bucket =
          queues_[static_cast<size_t>(slot.level)].HighestAtMost(LastBucketWithRoom(size));
      if (slot.bucket >= 0) break;
    }
    const int64_t group = Take(slot);
    const OpenGroup& open = Put(place, group);
    queues_[static_cast<size_t>(open.share_left)].Push(Bucket(open.tokens), group);
  }
  return keys_.size();
}

// Long samples leave tiles that even short ones do not fit into. The groups that are missing for
// these are opened at once: opened at the end, they would hold the shortest samples alone.
void GroupFiller::OpenWhatSmallSamplesNeed(size_t first) {
  int64_t tiles = 0;
  for (size_t place = first; place < keys_.size(); ++place) tiles += SizeAt(place).tiles;
  if (tiles == 0) return;
  const size_t lower_quartile = first + (keys_.size() - first) * 3 / 4;
  const double tokens = std::max(SizeAt(lower_quartile).tokens, 1);
  double places = 0;
  for (const OpenGroup& open : groups_) {
    places += std::min<double>(open.tiles_left,
                               static_cast<double>(limits_.tokens - open.tokens) / tokens);
  }
  const double of_one =
      std::min(static_cast<double>(limits_.tiles), static_cast<double>(limits_.tokens) / tokens);
  for (; places < static_cast<double>(tiles); places += of_one) Open();
}

// The group whose tokens are furthest below those that its tiles left will bring.
GroupFiller::Slot GroupFiller::Emptiest(const SampleSize& size, double mean) const {
  Slot slot;
  double largest_lack = 0;
  for (int64_t left = size.tiles; left <= limits_.tiles; ++left) {
    const int64_t bucket = queues_[static_cast<size_t>(left)].Highest();
    const int64_t room = bucket * bucket_tokens_;  // at least
    if (bucket < 0 || room < size.tokens) continue;
    const double lack = static_cast<double>(room) - static_cast<double>(left) * mean;
    if (slot.bucket >= 0 && lack <= largest_lack) continue;
    largest_lack = lack;
    slot = {left, bucket};
  }
  return slot;
}

// The group with the most tokens that has room.
GroupFiller::Slot GroupFiller::Fullest(const SampleSize& size) const {
  Slot slot;
  for (int64_t left = size.tiles; left <= limits_.tiles; ++left) {
    const int64_t bucket =
        queues_[static_cast<size_t>(left)].HighestAtMost(LastBucketWithRoom(size));
    if (bucket > slot.bucket) slot = {left, bucket};
  }
  return slot;
}

void GroupFiller::PlaceSmall(size_t first) {
  OpenWhatSmallSamplesNeed(first);
  ResetQueues();
  const auto bucket_of = [this](const OpenGroup& open) {
    return Bucket(token_bound_ ? open.tokens : limits_.tokens - open.tokens);
  };
  int64_t tiles_left = 0, tokens = 0;  // of all groups; of the samples to be placed
  for (int64_t i = 0; i < std::ssize(groups_); ++i) {
    const OpenGroup& open = groups_[static_cast<size_t>(i)];
    queues_[static_cast<size_t>(open.tiles_left)].Push(bucket_of(open), i);
    tiles_left += open.tiles_left;
  }
  for (size_t place = first; place < keys_.size(); ++place) tokens += SizeAt(place).tokens;
  for (size_t place = first; place < keys_.size(); ++place) {
    const SampleSize& size = SizeAt(place);
    const double mean =
        tiles_left <= 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(tiles_left);
    const Slot slot = token_bound_ ? Fullest(size) : Emptiest(size, mean);
    const int64_t group = Take(slot);
    const OpenGroup& open = Put(place, group);
    queues_[static_cast<size_t>(open.tiles_left)].Push(bucket_of(open), group);
    tiles_left -= size.tiles;
    tokens -= size.tokens;
  }
}

SampleGroups GroupFiller::Collect() const {
  std::vector<int64_t> begins(groups_.size() + 1, 0);
  for (const int32_t group : group_of_) {
    if (group >= 0) ++begins[static_cast<size_t>(group) + 1];
  }
  for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  std::vector<int64_t> members(keys_.size()), at(begins.begin(), begins.end() - 1);
  for (size_t sample = 0; sample < sizes_.size(); ++sample) {
    if (group_of_[sample] < 0) continue;
    int64_t& place = at[static_cast<size_t>(group_of_[sample])];
    members[static_cast<size_t>(place++)] = static_cast<int64_t>(sample);
  }
  SampleGroups groups;
  groups.Reserve(std::ssize(groups_), std::ssize(members));
  for (size_t i = 0; i < groups_.size(); ++i) {
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
