#include "parallel/comm/values.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "parallel/comm/single_communicator.h"
#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

TEST_CASE("values of the ranks are reduced and gathered in rank order", "[comm][cpu]") {
  const int ranks = GENERATE(2, 3);
  std::vector<std::vector<double>> sums(ranks);
  std::vector<int64_t> least(ranks);
  std::vector<std::vector<std::vector<int64_t>>> gathered(ranks);
  std::vector<int> any(ranks), none(ranks);
  constexpr int64_t kLarge = (int64_t{1} << 62) + 1;  // no double holds it
  RunRanks(ranks, [&](Communicator& world) {
    const int rank = world.rank();
    sums[rank] = AllReduceValues(world, std::vector<double>{1.0 / 3, 1.0 * rank}, ReduceOp::kSum);
    least[rank] = AllReduceValue(world, kLarge + rank, ReduceOp::kMin);
    gathered[rank] = GatherValues(world, std::vector<int64_t>{rank, kLarge});
    any[rank] = AnyRank(world, rank == 1);
    none[rank] = AnyRank(world, false);
  });
  std::vector<std::vector<int64_t>> rows;
  double thirds = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    rows.push_back({rank, kLarge});
    thirds += 1.0 / 3;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(sums[rank] == std::vector<double>{thirds, ranks * (ranks - 1) / 2.0});
    CHECK(least[rank] == kLarge);
    CHECK(gathered[rank] == rows);
    CHECK(any[rank] == 1);
    CHECK(none[rank] == 0);
  }
}

TEST_CASE("values of a group of one, and no values", "[comm][cpu]") {
  SingleCommunicator alone("world");
  CHECK(AllReduceValue(alone, 0.5, ReduceOp::kSum) == 0.5);
  CHECK(GatherValues(alone, std::vector<int64_t>{}) == std::vector<std::vector<int64_t>>{{}});
  CHECK(AllReduceValues(alone, std::vector<double>{}, ReduceOp::kMax).empty());
}

}  // namespace
}  // namespace equipoise
