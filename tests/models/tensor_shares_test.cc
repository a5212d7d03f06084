#include <catch2/catch.hpp>
#include <vector>

#include "configs/base/error.h"
#include "models/spec/tensor_parallel.h"

namespace equipoise {
namespace {

using Sizes = std::vector<int64_t>;

std::vector<HeadShares> Heads(int ranks, int64_t heads, int64_t key_heads, int64_t head_dim) {
  std::vector<HeadShares> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    shares.push_back(ShareHeads({nullptr, rank, ranks}, heads, key_heads, head_dim, "heads"));
  }
  return shares;
}

Sizes QuerySizes(int ranks, int64_t heads, int64_t key_heads) {
  Sizes sizes;
  for (const HeadShares& s : Heads(ranks, heads, key_heads, 1)) sizes.push_back(s.query.size);
  return sizes;
}

Sizes Widths(int ranks, int64_t width) {
  Sizes sizes;
  for (int rank = 0; rank < ranks; ++rank) {
    sizes.push_back(ShareWidth({nullptr, rank, ranks}, width, "columns").size);
  }
  return sizes;
}

TEST_CASE("heads are shared as evenly as whole heads allow", "[models][cpu]") {
  CHECK(QuerySizes(4, 25, 25) == Sizes{7, 6, 6, 6});  // InternViT-6B
  CHECK(QuerySizes(1, 25, 25) == Sizes{25});
  CHECK(QuerySizes(3, 5, 5) == Sizes{2, 2, 1});
  CHECK(QuerySizes(4, 28, 4) == Sizes{7, 7, 7, 7});  // Qwen2-7B
  CHECK(QuerySizes(8, 28, 4) == Sizes{4, 3, 4, 3, 4, 3, 4, 3});
  CHECK(QuerySizes(3, 28, 4) == Sizes{14, 7, 7});  // by whole groups
  CHECK(QuerySizes(3, 4, 2) == Sizes{1, 1, 2});
  CHECK(QuerySizes(5, 6, 1) == Sizes{2, 1, 1, 1, 1});
}

// Whatever the numbers: the query heads lie behind each other and cover all, each rank has the key
// heads that its query heads use and no other, in groups of one size, and each key head has one
// owner, the first that holds it.
TEST_CASE("query heads go to the ranks that hold their key heads", "[models][cpu]") {
  constexpr int64_t kDim = 8;
  for (const int64_t group : {1, 2, 7}) {
    for (int64_t key_heads = 1; key_heads <= 8; ++key_heads) {
      const int64_t heads = group * key_heads;
      for (int ranks = 1; ranks <= heads; ++ranks) {
        INFO(heads << " heads, " << key_heads << " key heads, " << ranks << " ranks");
        int64_t next = 0;
        Sizes owners(static_cast<size_t>(key_heads), 0);
        for (const HeadShares& s : Heads(ranks, heads, key_heads, kDim)) {
          REQUIRE(s.query.begin == next);
          next += s.query.size;
          REQUIRE(s.query.size > 0);
          REQUIRE(s.query.whole == heads * kDim);
          REQUIRE(s.key.whole == key_heads * kDim);
          const int64_t first = s.query.begin / kDim / group;
          const int64_t last = (s.query.begin + s.query.size - 1) / kDim / group;
          REQUIRE(s.key.begin == first * kDim);
          REQUIRE(s.key.size == (last - first + 1) * kDim);
          REQUIRE(s.query.size % s.key.size == 0);
          REQUIRE((s.key.parts == ranks || s.key.size == kDim));
          for (int64_t head = first; s.key.owner && head <= last; ++head) {
            ++owners[static_cast<size_t>(head)];
          }
        }
        CHECK(next == heads * kDim);
        CHECK(owners == Sizes(static_cast<size_t>(key_heads), 1));
      }
    }
  }
}

TEST_CASE("widths are cut in multiples of 16 where there are enough", "[models][cpu]") {
  CHECK(Widths(4, 12800) == Sizes{3200, 3200, 3200, 3200});
  CHECK(Widths(3, 12800) == Sizes{4272, 4272, 4256});
  CHECK(Widths(3, 48) == Sizes{16, 16, 16});
  CHECK(Widths(4, 48) == Sizes{16, 16, 8, 8});
  CHECK(Widths(2, 7) == Sizes{4, 3});
}

TEST_CASE("the vocabulary is shared without padding", "[models][cpu]") {
  int64_t next = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Share share = ShareUnits({nullptr, rank, 4}, 151674, 1, "rows of the vocabulary");
    CHECK(share.begin == next);
    CHECK(share.size == (rank < 2 ? 37919 : 37918));
    CHECK(share.whole == 151674);
    CHECK(share.owner);
    next += share.size;
  }
  CHECK(next == 151674);
}

TEST_CASE("a rank alone holds everything", "[models][cpu]") {
  const auto [query, key] = ShareHeads({}, 6, 2, 4, "heads");
  for (const Share& share : {query, key, ShareWidth({}, 24, "columns")}) {
    CHECK_FALSE(share.split());
    CHECK(share.begin == 0);
    CHECK(share.size == share.whole);
    CHECK(share.owner);
  }
}

TEST_CASE("more ranks than heads are refused with both numbers", "[models][cpu]") {
  CHECK_THROWS_AS(Heads(5, 4, 2, 8), ConfigError);
  CHECK_THROWS_WITH(Heads(5, 4, 2, 8),
                    "parallel.tensor: 5 ranks cannot share 4 heads; use at most 4");
  CHECK_NOTHROW(Heads(4, 4, 2, 8));
}

}  // namespace
}  // namespace equipoise
