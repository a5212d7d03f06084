#include "balance/groups/group_exchange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "configs/base/error.h"

// A pass sorts the groups by load, with noise in the low bits, and pairs the ends of the list. In a
// pair the exchange is made that lowers the pair's cost most: squared distances to the mean patches
// and tokens, relative to the limits, plus the weighted squared excess over the limits. The sum of
// costs never grows, so that passes may end at any time. Passes pair by tokens, by patches and by
// both in turn. At most 16 members of a group are compared, so a pass is O(groups x 16^2); a
// group's members are contiguous, and those of later pairs are prefetched.

namespace equipoise {
namespace {

constexpr int64_t kMostMembers = 16;   // members of a group that are compared in a pass
constexpr int64_t kMostExchanges = 3;  // exchanges of a pair in a pass
constexpr int64_t kSpare = 2;          // free places of a group, beyond its size and the mean
// A group is even enough at this distance to the mean, relative to the limits.
constexpr double kEven = 1.0 / 256;
constexpr double kLeastGain = 1.0 / 1024;  // share of a pair's cost that an exchange must save
constexpr double kExcessWeight = 100;      // weight of excess over the limits against unevenness

// Prefetching: pairs ahead, and members to the next cache line.
constexpr size_t kAhead = 8, kLineMembers = 5;

struct Member {
  int32_t sample = -1, patches = 0, tokens = 0;
};

struct Group {
  int32_t patches = 0, tokens = 0;
  int32_t begin = 0, size = 0, room = 0;  // range of its members in the list of all
};

// The load by which groups are paired.
enum class PairBy : uint8_t { kTokens, kPatches, kBoth };

// Sorts keys whose low bits ascend already, by the others: a radix sort, digit by digit.
template <int kLowBits>
void SortByHighBits(std::vector<uint64_t>& keys) {
  constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
  std::vector<uint64_t> sorted(keys.size());
  for (int shift = kLowBits; shift < 64; shift += kDigitBits) {
    const auto digit = [&](uint64_t key) { return key >> shift & (kDigits - 1); };
    std::array<size_t, kDigits + 1> begin = {};
    for (const uint64_t key : keys) ++begin[digit(key) + 1];
    for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
    for (const uint64_t key : keys) sorted[begin[digit(key)]++] = key;
    keys.swap(sorted);
  }
}

class Exchanger {
 public:
  Exchanger(std::span<const SampleSize> sizes, const ExchangeOptions& options,
            const GroupOfSample& groups)
      : limits_(options.limits),
        keep_limits_(options.keep_limits),
        most_patches_(static_cast<double>(limits_.patches)),
        most_tokens_(static_cast<double>(limits_.tokens)),
        of_patches_(1 / most_patches_),
        of_tokens_(1 / most_tokens_) {
    AddMembers(sizes, groups);
    const auto n = static_cast<double>(groups_.size());
    for (const Group& group : groups_) {
      mean_patches_ += group.patches / n;
      mean_tokens_ += group.tokens / n;
    }
  }

  // Returns the number of exchanges.
  int64_t Pass(PairBy by, int64_t number, SplitMix& random);
  void Store(GroupOfSample& groups) const;

 private:
  void AddMembers(std::span<const SampleSize> sizes, const GroupOfSample& groups);
  bool Within(int64_t patches, int64_t tokens) const {
    return patches <= limits_.patches && tokens <= limits_.tokens;
  }
  // Squared distance to the mean relative to the limits, and weighted squared excess over these.
  double Cost(int32_t patches, int32_t tokens) const {
    // Half a patch is as near to the mean as a whole number can be.
    const double v = std::max(std::abs(patches - mean_patches_) - 0.5, 0.0) * of_patches_;
    const double t = (tokens - mean_tokens_) * of_tokens_;
    const double over_v = std::max(patches - most_patches_, 0.0) * of_patches_;
    const double over_t = std::max(tokens - most_tokens_, 0.0) * of_tokens_;
    return v * v + t * t + kExcessWeight * (over_v * over_v + over_t * over_t);
  }
  double Cost(const Group& group) const { return Cost(group.patches, group.tokens); }
  // Lists the members that pass `number` compares, after an entry for none. Returns their number.
  int64_t Candidates(const Group& group, int64_t number, std::array<Member, kMostMembers + 1>& seen,
                     std::array<int32_t, kMostMembers + 1>& place) const;
  bool Exchange(Group& a, Group& b, int64_t number);
  void Replace(Group& group, int32_t place, const Member& by);

  GroupLimits limits_;
  bool keep_limits_;
  double most_patches_, most_tokens_;  // the limits
  double of_patches_, of_tokens_;      // their inverses
  double mean_patches_ = 0, mean_tokens_ = 0;
  std::vector<Group> groups_;
  std::vector<Member> members_;  // by group, contiguous: few cache lines a group
};

void Exchanger::AddMembers(std::span<const SampleSize> sizes, const GroupOfSample& groups) {
  groups_.resize(static_cast<size_t>(groups.groups));
  int64_t samples = 0;
  for (const int32_t group : groups.group) {
    if (group < 0) continue;
    ++groups_[static_cast<size_t>(group)].room;
    ++samples;
  }
  const auto mean = static_cast<int32_t>(samples / std::max<int64_t>(groups.groups, 1));
  int64_t begin = 0;
  for (Group& group : groups_) {
    group.begin = static_cast<int32_t>(begin);
    group.room = std::max(group.room, mean) + static_cast<int32_t>(kSpare);
    begin += group.room;
    EQUIPOISE_CHECK(begin <= std::numeric_limits<int32_t>::max(), "more places than 2^31 in ",
                    groups.groups, " groups; set balance.window");
  }
  members_.resize(static_cast<size_t>(begin));
  for (size_t sample = 0; sample < groups.group.size(); ++sample) {
    if (groups.group[sample] < 0) continue;
    Group& group = groups_[static_cast<size_t>(groups.group[sample])];
    const SampleSize& size = sizes[sample];
    members_[static_cast<size_t>(group.begin + group.size++)] = {static_cast<int32_t>(sample),
                                                                 size.patches, size.tokens};
    group.patches += size.patches;
    group.tokens += size.tokens;
  }
}

void Exchanger::Store(GroupOfSample& groups) const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    for (int32_t place = group.begin; place < group.begin + group.size; ++place) {
      const Member& member = members_[static_cast<size_t>(place)];
      groups.group[static_cast<size_t>(member.sample)] = static_cast<int32_t>(i);
    }
  }
}

int64_t Exchanger::Candidates(const Group& group, int64_t number,
                              std::array<Member, kMostMembers + 1>& seen,
                              std::array<int32_t, kMostMembers + 1>& place) const {
  seen[0] = {};
  place[0] = group.begin + group.size;
  const int64_t count = std::min<int64_t>(group.size, kMostMembers);
  const int64_t first = count == group.size ? 0 : number * kMostMembers % group.size;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i) + 1;
    place[at] = group.begin + static_cast<int32_t>((first + i) % group.size);
    seen[at] = members_[static_cast<size_t>(place[at])];
  }
  return count + 1;
}

void Exchanger::Replace(Group& group, int32_t place, const Member& by) {
  Member& member = members_[static_cast<size_t>(place)];
  if (place == group.begin + group.size) {  // none
    if (by.sample < 0) return;
    member = by;
    ++group.size;
  } else {
    group.patches -= member.patches;
    group.tokens -= member.tokens;
    member = by;
    if (by.sample < 0) member = members_[static_cast<size_t>(group.begin + --group.size)];
  }
  group.patches += by.patches;
  group.tokens += by.tokens;
}

bool Exchanger::Exchange(Group& a, Group& b, int64_t number) {
  std::array<Member, kMostMembers + 1> of_a, of_b;
  std::array<int32_t, kMostMembers + 1> place_a, place_b;
  const auto count_a = static_cast<size_t>(Candidates(a, number, of_a, place_a));
  const auto count_b = static_cast<size_t>(Candidates(b, number, of_b, place_b));
  const bool keep_a = keep_limits_ && Within(a.patches, a.tokens);
  const bool keep_b = keep_limits_ && Within(b.patches, b.tokens);
  double least = (Cost(a) + Cost(b)) * (1 - kLeastGain);
  size_t best_a = 0, best_b = 0;
  // Index 0 stands for no member: the sample is moved, where its group keeps another.
  for (size_t i = b.size < 2 || a.size == a.room ? 1 : 0; i < count_a; ++i) {
    for (size_t j = a.size < 2 || b.size == b.room ? 1 : 0; j < count_b; ++j) {
      const int32_t patches = of_b[j].patches - of_a[i].patches;
      const int32_t tokens = of_b[j].tokens - of_a[i].tokens;
      const double cost = Cost(a.patches + patches, a.tokens + tokens) +
                          Cost(b.patches - patches, b.tokens - tokens);
      if (cost >= least) continue;
      if (keep_a && !Within(a.patches + patches, a.tokens + tokens)) continue;
      if (keep_b && !Within(b.patches - patches, b.tokens - tokens)) continue;
      least = cost;
      best_a = i;
      best_b = j;
    }
  }
  if (best_a == 0 && best_b == 0) return false;
  Replace(a, place_a[best_a], of_b[best_b]);
  Replace(b, place_b[best_b], of_a[best_a]);
  return true;
}

int64_t Exchanger::Pass(PairBy by, int64_t number, SplitMix& random) {
  constexpr int kGroupBits = 32, kNoiseBits = 12;
  std::vector<uint64_t> keys;
  keys.reserve(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    double load = 0;
    if (by != PairBy::kTokens) load += group.patches / static_cast<double>(limits_.patches);
    if (by != PairBy::kPatches) load += group.tokens / static_cast<double>(limits_.tokens);
    const auto coarse = static_cast<uint64_t>(std::min(load, 15.0) * (1 << 15));
    keys.push_back((coarse << kNoiseBits | random.Next() >> (64 - kNoiseBits)) << kGroupBits | i);
  }
  SortByHighBits<kGroupBits>(keys);
  const auto group_at = [&](size_t place) -> Group& {
    return groups_[keys[place] & ((uint64_t{1} << kGroupBits) - 1)];
  };
  int64_t exchanges = 0;
  for (size_t i = 0; i < keys.size() / 2; ++i) {
    if (i + kAhead < keys.size() / 2) {
      for (const size_t at : {i + kAhead, keys.size() - 1 - i - kAhead}) {
        __builtin_prefetch(&group_at(at));
      }
      for (const size_t at : {i + kAhead / 2, keys.size() - 1 - i - kAhead / 2}) {
        __builtin_prefetch(&members_[static_cast<size_t>(group_at(at).begin)]);
        __builtin_prefetch(&members_[static_cast<size_t>(group_at(at).begin)] + kLineMembers);
      }
    }
    Group &few = group_at(i), &many = group_at(keys.size() - 1 - i);
    if (Cost(few) + Cost(many) < 2 * kEven * kEven) continue;
    int64_t done = 0;
    while (done < kMostExchanges && Exchange(few, many, number)) ++done;
    exchanges += done;
  }
  return exchanges;
}

}  // namespace

void ExchangeSamples(std::span<const SampleSize> sizes, const ExchangeOptions& options,
                     SplitMix& random, GroupOfSample& groups) {
  EQUIPOISE_CHECK(options.limits.patches > 0 && options.limits.tokens > 0, options.limits.tokens);
  Exchanger exchanger(sizes, options, groups);
  int64_t idle = 0;  // passes without an exchange
  for (int64_t pass = 0; pass < options.passes && idle < 3; ++pass) {
    const auto by = static_cast<PairBy>(pass % 3);
    idle = exchanger.Pass(by, pass, random) > 0 ? 0 : idle + 1;
  }
  exchanger.Store(groups);
}

}  // namespace equipoise
