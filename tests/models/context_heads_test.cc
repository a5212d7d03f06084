// How context ranks share out heads and rows.

#include "models/spec/context_heads.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

namespace equipoise {
namespace {

double Pairs(const Ranges& rows, const std::vector<int64_t>& cu_seqlens) {
  double pairs = 0;
  for (const Range& range : rows) {
    const int64_t begin =
        *std::prev(std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), range.begin));
    for (int64_t row = range.begin; row < range.end; ++row)
      pairs += static_cast<double>(row - begin + 1);
  }
  return pairs;
}

TEST_CASE("heads are shared out where that is even, else rows too", "[models][cpu]") {
  const auto groups = [](int64_t heads, int64_t keys, int ranks) {
    const ContextSplit split = SplitOverContext(heads, keys, ranks);
    CHECK(split.head_groups * split.row_groups == ranks);
    return split.head_groups;
  };
  CHECK(groups(32, 8, 8) == 8);
  CHECK(groups(14, 2, 2) == 2);   // Qwen2-0.5B
  CHECK(groups(14, 2, 4) == 2);   // 4, 3, 4, 3 is an eighth above the mean
  CHECK(groups(25, 25, 2) == 2);  // 13 and 12: 4 % above it
  CHECK(groups(4, 2, 3) == 1);
  CHECK(groups(6, 1, 8) == 2);  // fewer heads than ranks
  CHECK(groups(1, 1, 4) == 1);
  CHECK(groups(28, 4, 3) == 1);  // 14, 7 and 7
  const ContextSplit even = SplitOverContext(32, 8, 8);
  CHECK(even.work == 1);
  CHECK(even.copies == 1);
  CHECK(SplitOverContext(32, 8, 16).copies == 2);  // a key head on two ranks
  CHECK(SplitOverContext(14, 2, 4).copies == 2);
  CHECK(SplitOverContext(4, 2, 3).copies == 3);
  CHECK(SplitOverContext(25, 25, 2).work == Approx(26.0 / 25));
}

TEST_CASE("row groups have all rows once, and as much causal work each", "[models][cpu]") {
  std::mt19937 dice(GENERATE(range(0, 50)));
  const int groups = 1 + static_cast<int>(dice() % 8);
  std::vector<int64_t> cu_seqlens = {0};
  const int64_t longest = int64_t{1} << (dice() % 11);
  for (int s = static_cast<int>(dice() % 12); s >= 0; --s)
    cu_seqlens.push_back(cu_seqlens.back() + static_cast<int64_t>(dice() % (longest + 1)));
  const bool cut = dice() % 2 == 0;
  const std::vector<Ranges> rows = CausalRows(cu_seqlens, groups, cut);
  REQUIRE(static_cast<int>(rows.size()) == groups);
  std::vector<int> seen(static_cast<size_t>(cu_seqlens.back()));
  double most = 0, all = 0;
  for (const Ranges& own : rows) {
    int64_t before = 0;
    for (const Range& range : own) {
      CHECK(range.begin >= before);
      CHECK(range.size() > 0);
      before = range.end;
      // Within one segment; whole, unless it may be cut.
      const auto end = std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), range.begin);
      CHECK(range.end <= *end);
      if (!cut) CHECK((range.begin == *std::prev(end) && range.end == *end));
      for (int64_t row = range.begin; row < range.end; ++row) ++seen[static_cast<size_t>(row)];
    }
    most = std::max(most, Pairs(own, cu_seqlens));
    all += Pairs(own, cu_seqlens);
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  // Pieces are even to a row of each, and what is dealt whole to the longest of it.
  const double segments = static_cast<double>(cu_seqlens.size() - 1);
  const double whole =
      cut ? std::min<double>(longest, 16.0 * groups) : static_cast<double>(longest);
  CHECK(most <=
        all / groups + whole * (whole + 1) / 2 + 4 * segments * static_cast<double>(longest));
}

TEST_CASE("a long segment is cut in pairs of pieces", "[models][cpu]") {
  CHECK(CausalRows({0, 5, 85}, 2, /*cut=*/true) ==
        std::vector<Ranges>{{{0, 5}, {5, 25}, {65, 85}}, {{25, 65}}});
  CHECK(CausalRows({0, 80}, 2, /*cut=*/false) == std::vector<Ranges>{{{0, 80}}, {}});
  CHECK(CausalRows({0}, 2, true) == std::vector<Ranges>{{}, {}});
}

}  // namespace
}  // namespace equipoise
