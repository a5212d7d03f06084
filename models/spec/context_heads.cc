#include "models/spec/context_heads.h"

#include <algorithm>
#include <string>

#include "models/spec/tensor_parallel.h"

namespace equipoise {
namespace {

constexpr double kMostUneven = 1.1;
// Rows of a piece that are worth a call of the kernel.
constexpr int64_t kLeastPiece = 8;

ContextSplit SplitInto(int head_groups, int64_t heads, int64_t key_heads, int ranks) {
  int64_t most = 0, most_keys = 0;
  for (int rank = 0; rank < head_groups; ++rank) {
    const HeadShares shares = ShareHeads({.rank = rank, .size = head_groups}, heads, key_heads,
                                         /*head_dim=*/1, "attention heads");
    most = std::max(most, shares.query.size);
    most_keys = std::max(most_keys, shares.key.size);
  }
  const auto per_head = [&](int64_t part, int groups, int64_t all) {
    return static_cast<double>(part) * groups / static_cast<double>(all);
  };
  return {head_groups, ranks / head_groups, per_head(most, head_groups, heads),
          per_head(most_keys, ranks, key_heads)};
}

}  // namespace

ContextSplit SplitOverContext(int64_t heads, int64_t key_heads, int ranks) {
  for (int head_groups = ranks; head_groups > 1; --head_groups) {
    if (ranks % head_groups != 0 || head_groups > heads) continue;
    const ContextSplit split = SplitInto(head_groups, heads, key_heads, ranks);
    if (split.work <= kMostUneven) return split;
  }
  return SplitInto(1, heads, key_heads, ranks);
}

std::vector<Ranges> CausalRows(const std::vector<int64_t>& cu_seqlens, int groups, bool cut) {
  std::vector<Ranges> rows(static_cast<size_t>(groups));
  std::vector<double> pairs(rows.size());
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const Range segment = {cu_seqlens[s], cu_seqlens[s + 1]};
    const int64_t size = segment.size();
    if (size == 0) continue;
    const int64_t pieces = 2 * int64_t{groups};
    if (!cut || size < pieces * kLeastPiece) {
      const auto least = std::min_element(pairs.begin(), pairs.end());
      *least += static_cast<double>(size) * static_cast<double>(size + 1) / 2;
      rows[static_cast<size_t>(least - pairs.begin())].push_back(segment);
      continue;
    }
    // The pieces of the front, each for the next group, then those of the back the other way.
    const auto cut_at = [&](int64_t piece) { return segment.begin + size * piece / pieces; };
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t group = std::min(piece, pieces - 1 - piece);
      Ranges& of_group = rows[static_cast<size_t>(group)];
      if (piece == groups) {  // the last group's two pieces are one
        of_group.back().end = cut_at(piece + 1);
      } else {
        of_group.push_back({cut_at(piece), cut_at(piece + 1)});
      }
    }
  }
  return rows;
}

}  // namespace equipoise
