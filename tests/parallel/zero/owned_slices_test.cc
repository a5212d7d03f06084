#include "parallel/zero/owned_slices.h"

#include <catch2/catch.hpp>
#include <random>

#include "parallel/flat_alignment.h"

namespace equipoise {
namespace {

// By element, how often it is owned by one of the ranks that hold it: of the copied ones all data
// ranks of all copies, of the others the data ranks of one copy.
struct Owners {
  std::vector<int> copied, other;
};

void Count(const OwnedSlices& own, int64_t copied, int copy, Owners& owners) {
  for (const Shards::Run& run : own.runs()) {
    for (int64_t i = run.flat.begin; i < run.flat.end; ++i) {
      if (i < copied) {
        ++owners.copied[static_cast<size_t>(i)];
      } else if (copy == 0) {
        ++owners.other[static_cast<size_t>(i - copied)];
      }
    }
  }
}

TEST_CASE("copies and data ranks own each element once", "[zero][cpu]") {
  std::mt19937 random(5);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const auto ranks = static_cast<int>(pick(1, 4)), copies = static_cast<int>(pick(2, 5));
    const int64_t copied = kFlatAlignment * pick(1, 40), bucket = pick(1, 9000);
    Owners owners{std::vector<int>(static_cast<size_t>(copied)), {}};
    size_t buckets = 0;
    for (int copy = 0; copy < copies; ++copy) {
      // What lies behind the copied elements differs.
      const int64_t numel = Shards::Padded(copied + kFlatAlignment * pick(0, 30), ranks);
      if (copy == 0) owners.other.resize(static_cast<size_t>(numel - copied));
      CopiedElements shared{copied, 0, copies, copy};
      const Shards shards = ShardsOfCopied(numel, ranks, bucket, shared);
      INFO(ranks << " ranks, " << copies << " copies of " << copied << ", buckets of " << bucket);
      REQUIRE(shards.numel() == numel);
      // The shared buckets are the same for all copies; few elements are left.
      if (copy == 0) buckets = shared.buckets;
      CHECK(shared.buckets == buckets);
      const int64_t end = buckets > 0 ? shards.Bucket(buckets - 1).end : 0;
      const int64_t unit = kFlatAlignment * ranks * copies;
      CHECK(end <= copied);
      CHECK(copied - end < unit * static_cast<int64_t>(std::max<size_t>(1, buckets)));
      for (int rank = 0; rank < ranks; ++rank) {
        const OwnedSlices own(shards, rank, shared);
        int64_t next = 0, before = 0;
        for (const Shards::Run& run : own.runs()) {
          CHECK(run.rank == rank);
          CHECK(run.local == next);
          CHECK(run.flat.begin >= before);
          CHECK(run.flat.begin % kFlatAlignment == 0);
          next += run.flat.size();
          before = run.flat.end;
        }
        CHECK(own.numel() == next);
        Count(own, copied, copy, owners);
      }
    }
    CHECK(owners.copied == std::vector<int>(owners.copied.size(), 1));
    CHECK(owners.other == std::vector<int>(owners.other.size(), 1));
  }
}

TEST_CASE("what a rank owns in a range, and without copies its slices", "[zero][cpu]") {
  const Shards shards(4 * 1024, 2, 1024);
  const OwnedSlices own(shards, 1);
  CHECK(own.numel() == shards.shard_numel());
  CHECK(own.buffer_numel() == shards.numel());
  CHECK_FALSE(own.whole());
  for (const Range range : {Range{0, 4096}, Range{700, 1500}, Range{0, 512}, Range{512, 512}}) {
    CHECK(own.RunsIn(range) == shards.RunsIn(range, 1));
  }
  CHECK(OwnedSlices(Shards(1024), 0).whole());
}

}  // namespace
}  // namespace equipoise
