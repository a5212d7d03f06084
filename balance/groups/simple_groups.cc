#include "balance/groups/simple_groups.h"

#include <algorithm>
#include <set>
#include <utility>

namespace equipoise {
namespace {

// Packs that are open at a time: more are filled better, but move samples further in the order.
constexpr size_t kOpenGroups = 64;
constexpr int64_t kKnapsacks = 256;  // groups filled at a time

std::vector<int64_t> LongestFirst(std::span<const SampleSize> sizes,
                                  std::span<const int64_t> samples) {
  std::vector<int64_t> sorted(samples.begin(), samples.end());
  std::stable_sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) {
    return sizes[static_cast<size_t>(a)].tokens > sizes[static_cast<size_t>(b)].tokens;
  });
  return sorted;
}

// Adds groups of equal size from sorted samples; see LengthGroupedGroups().
void AddEvenChunks(std::span<const SampleSize> sizes, const std::vector<int64_t>& sorted,
                   const LengthGroupedOptions& options, SampleGroups& groups) {
  const auto chunks = static_cast<size_t>(options.groups_a_step);
  const bool whole = std::ssize(sorted) == options.groups_a_step * options.samples_a_group;
  std::vector<std::vector<int64_t>> members(chunks);
  std::set<std::pair<int64_t, size_t>> open;  // tokens, chunk
  for (size_t i = 0; i < chunks; ++i) open.emplace(0, i);
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (!whole) {
      members[i % chunks].push_back(sorted[i]);
      continue;
    }
    const auto [tokens, chunk] = *open.begin();
    open.erase(open.begin());
    members[chunk].push_back(sorted[i]);
    if (std::ssize(members[chunk]) < options.samples_a_group) {
      open.emplace(tokens + sizes[static_cast<size_t>(sorted[i])].tokens, chunk);
    }
  }
  for (const auto& chunk : members) {
    if (!chunk.empty()) groups.Add(chunk);
  }
}

void AddKnapsacks(std::span<const SampleSize> sizes, std::span<const int64_t> samples,
                  const GroupLimits& limits, SampleGroups& groups) {
  int64_t tokens = 0;
  for (const int64_t sample : samples) tokens += sizes[static_cast<size_t>(sample)].tokens;
  std::vector<std::vector<int64_t>> members;
  std::vector<int64_t> patches;
  std::set<std::pair<int64_t, size_t>> lightest;  // tokens, knapsack
  const auto open = [&] {
    lightest.emplace(0, members.size());
    members.emplace_back();
    patches.push_back(0);
    return std::prev(lightest.end());
  };
  for (int64_t i = 0; i * limits.tokens < tokens; ++i) open();
  for (const int64_t sample : LongestFirst(sizes, samples)) {
    const SampleSize& size = sizes[static_cast<size_t>(sample)];
    auto found = std::find_if(lightest.begin(), lightest.end(), [&](const auto& entry) {
      return entry.first + size.tokens <= limits.tokens &&
             patches[entry.second] + size.patches <= limits.patches;
    });
    if (found == lightest.end()) {
      open();
      found = lightest.find({0, members.size() - 1});
    }
    const auto [load, knapsack] = *found;
    lightest.erase(found);
    members[knapsack].push_back(sample);
    patches[knapsack] += size.patches;
    lightest.emplace(load + size.tokens, knapsack);
  }
  for (const auto& knapsack : members) {
    if (!knapsack.empty()) groups.Add(knapsack);
  }
}

}  // namespace

SampleGroups RandomGroups(std::span<const int64_t> order, int64_t samples_a_group) {
  SampleGroups groups;
  const auto most = static_cast<size_t>(samples_a_group);
  for (size_t begin = 0; begin < order.size(); begin += most) {
    groups.Add(order.subspan(begin, std::min(most, order.size() - begin)));
  }
  return groups;
}

SampleGroups LengthGroupedGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                                 const LengthGroupedOptions& options) {
  SampleGroups groups;
  const auto run = static_cast<size_t>(options.samples_a_group * options.groups_a_step);
  for (size_t begin = 0; begin < order.size(); begin += run) {
    const auto samples = order.subspan(begin, std::min(run, order.size() - begin));
    AddEvenChunks(sizes, LongestFirst(sizes, samples), options, groups);
  }
  return groups;
}

SampleGroups PackedGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                          int64_t tokens) {
  struct Open {
    std::vector<int64_t> samples;
    int64_t tokens = 0;
  };
  SampleGroups groups;
  std::vector<Open> open;
  const auto close = [&](size_t which) {
    groups.Add(open[which].samples);
    open.erase(open.begin() + static_cast<int64_t>(which));
  };
  for (const int64_t sample : order) {
    const int64_t own = sizes[static_cast<size_t>(sample)].tokens, room = tokens - own;
    size_t best = open.size(), fullest = 0;
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].tokens <= room && (best == open.size() || open[i].tokens > open[best].tokens))
        best = i;
      if (open[i].tokens > open[fullest].tokens) fullest = i;
    }
    if (best == open.size()) {
      if (open.size() == kOpenGroups) close(fullest);
      best = open.size();
      open.emplace_back();
    }
    open[best].samples.push_back(sample);
    open[best].tokens += own;
    if (open[best].tokens == tokens) close(best);
  }
  while (!open.empty()) close(0);
  return groups;
}

SampleGroups KnapsackGroups(std::span<const SampleSize> sizes, std::span<const int64_t> order,
                            const GroupLimits& limits) {
  SampleGroups groups;
  size_t begin = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    tokens += sizes[static_cast<size_t>(order[i])].tokens;
    if (tokens < kKnapsacks * limits.tokens && i + 1 < order.size()) continue;
    AddKnapsacks(sizes, order.subspan(begin, i + 1 - begin), limits, groups);
    begin = i + 1;
    tokens = 0;
  }
  return groups;
}

}  // namespace equipoise
