#include "parallel/shards.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <stdexcept>

#include "parallel/flat_alignment.h"

namespace equipoise {
namespace {

TEST_CASE("sizes are padded to what ranks can share", "[shards][cpu]") {
  CHECK(Shards::Padded(0, 3) == 0);
  CHECK(Shards::Padded(1, 1) == 256);
  CHECK(Shards::Padded(256, 3) == 768);
  CHECK(Shards::Padded(769, 3) == 1536);
}

TEST_CASE("buckets are counted from the end, the first is what remains", "[shards][cpu]") {
  const Shards shards(5 * 512, 2, 1024);
  REQUIRE(shards.num_buckets() == 3);
  CHECK(shards.Bucket(0) == Range{0, 512});
  CHECK(shards.Bucket(1) == Range{512, 1536});
  CHECK(shards.Bucket(2) == Range{1536, 2560});
  CHECK(shards.Slice(0, 1) == Range{256, 512});
  CHECK(shards.Slice(2, 0) == Range{1536, 2048});
  CHECK(shards.shard_numel() == 1280);
  CHECK(shards.ShardOffset(1) == 256);
  CHECK(shards.BucketOf(511) == 0);
  CHECK(shards.BucketOf(512) == 1);
  CHECK(shards.BucketOf(2559) == 2);
}

TEST_CASE("one rank holds everything in one piece", "[shards][cpu]") {
  const Shards shards(768);
  CHECK(shards.num_buckets() == 1);
  CHECK(shards.RunsIn({70, 600}, 0) == std::vector<Shards::Run>{{0, {70, 600}, 70}});
  CHECK(Shards(0).num_buckets() == 0);
  CHECK(Shards(0).RunsIn({0, 0}).empty());
}

TEST_CASE("buckets grow rather than become more", "[shards][cpu]") {
  const int64_t numel = Shards::Padded(100'000'000, 3);
  const Shards shards(numel, 3, 1);
  CHECK(shards.num_buckets() <= static_cast<size_t>(Shards::kMaxBuckets));
  CHECK(shards.num_buckets() > static_cast<size_t>(Shards::kMaxBuckets) / 2);
}

TEST_CASE("a size that ranks cannot share is a bug", "[shards][cpu]") {
  CHECK_THROWS_AS(Shards(100, 1, 64), std::logic_error);
  CHECK_THROWS_AS(Shards(512, 3, 64), std::logic_error);
}

TEST_CASE("every element is in one place of one shard", "[shards][cpu]") {
  std::mt19937 random(7);
  const int ranks = GENERATE(1, 2, 3, 4, 7);
  for (int round = 0; round < 50; ++round) {
    const int64_t numel =
        Shards::Padded(std::uniform_int_distribution<int64_t>(1, 9000)(random), ranks);
    const Shards shards(numel, ranks, std::uniform_int_distribution<int64_t>(1, 4000)(random));
    std::vector<std::vector<int>> seen(static_cast<size_t>(ranks));
    for (auto& shard : seen) shard.resize(static_cast<size_t>(shards.shard_numel()));
    int64_t at = std::uniform_int_distribution<int64_t>(0, numel)(random), sum = 0;
    for (const Range range : {Range{0, at}, Range{at, numel}}) {
      int64_t next = range.begin;
      for (const Shards::Run& run : shards.RunsIn(range)) {
        REQUIRE(run.flat.begin == next);
        next = run.flat.end;
        const Range slice = shards.Slice(shards.BucketOf(run.flat.begin), run.rank);
        REQUIRE((slice.begin <= run.flat.begin && run.flat.end <= slice.end));
        REQUIRE((slice.begin % kFlatAlignment == 0 && slice.end % kFlatAlignment == 0));
        for (int64_t i = 0; i < run.flat.size(); ++i) {
          ++seen[static_cast<size_t>(run.rank)][static_cast<size_t>(run.local + i)];
        }
      }
      REQUIRE(next == range.end);
    }
    for (const auto& shard : seen) {
      REQUIRE(std::all_of(shard.begin(), shard.end(), [](int n) { return n == 1; }));
      sum += static_cast<int64_t>(shard.size());
    }
    REQUIRE(sum == numel);
    // A rank's runs of one range follow each other in its shard.
    for (int rank = 0; rank < ranks; ++rank) {
      const auto runs = shards.RunsIn({at / kFlatAlignment * kFlatAlignment, numel}, rank);
      for (size_t i = 1; i < runs.size(); ++i) {
        REQUIRE(runs[i].local == runs[i - 1].local + runs[i - 1].flat.size());
      }
    }
  }
}

}  // namespace
}  // namespace equipoise
