#include "trainer/loop/straggler.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

// A window in which rank r takes paces[r] seconds for each unit of work, and has r + 1 units.
std::vector<RankTimes> Window(const std::vector<double>& paces) {
  std::vector<RankTimes> ranks;
  for (size_t r = 0; r < paces.size(); ++r) {
    const double work = static_cast<double>(r + 1);
    RankTimes times;
    times.measured.compute_s = paces[r] * work;
    times.predicted.compute_s = work;
    ranks.push_back(times);
  }
  return ranks;
}

// What a watch says of each of the windows.
std::vector<std::vector<Straggler>> Watch(const std::vector<int>& layers,
                                          const std::vector<std::vector<double>>& windows) {
  StragglerWatch watch(layers);
  std::vector<std::vector<Straggler>> told;
  for (const std::vector<double>& paces : windows) told.push_back(watch.Add(Window(paces)));
  return told;
}

using Windows = std::vector<std::vector<double>>;
const std::vector<Straggler> kNobody;

TEST_CASE("a rank slower than the others with its layers is named", "[straggler][cpu]") {
  const std::vector<int> same = {0, 0, 0, 0};
  const auto told = Watch(same, Windows(4, {2, 2, 3.5, 2.1}));
  CHECK(told[0] == kNobody);
  CHECK(told[1] == kNobody);
  REQUIRE(told[2].size() == 1);  // in the third window in a row
  CHECK(told[2][0].rank == 2);
  CHECK(told[2][0].slowdown == Approx(1.75));
  CHECK(told[2][0].among_equals);
  CHECK(told[3] == kNobody);  // is not repeated at once
}

TEST_CASE("of two ranks the slower one is named, and two slow ones of four", "[straggler][cpu]") {
  auto told = Watch({0, 0}, Windows(3, {2, 3}));
  REQUIRE(told[2].size() == 1);
  CHECK(told[2][0].rank == 1);
  told = Watch({0, 0, 0, 0}, Windows(3, {2, 3, 2, 4}));
  REQUIRE(told[2].size() == 2);
  CHECK(told[2][0].rank == 1);
  CHECK(told[2][1].rank == 3);
}

TEST_CASE("a slow window amid others is no straggler", "[straggler][cpu]") {
  const std::vector<double> even = {2, 2, 2}, slow = {2, 2, 9};
  for (const auto& told : Watch({0, 0, 0}, {even, slow, slow, even, slow, slow, even}))
    CHECK(told == kNobody);
  for (const auto& told : Watch({0, 0, 0}, Windows(9, {2, 2.3, 1.9}))) CHECK(told == kNobody);
}

TEST_CASE("stages with other layers are not compared as they are", "[straggler][cpu]") {
  // The second stage is three times as slow as predicted against the first, on both data ranks.
  const std::vector<int> stages = {0, 1, 0, 1};
  for (const auto& told : Watch(stages, Windows(9, {1, 3, 1, 3}))) CHECK(told == kNobody);
  const auto told = Watch(stages, Windows(3, {1, 3, 1, 6}));
  REQUIRE(told[2].size() == 1);
  CHECK(told[2][0].rank == 3);
  CHECK(told[2][0].slowdown == Approx(2));
}

TEST_CASE("a stage of its own is compared with what it was", "[straggler][cpu]") {
  const std::vector<double> first = {1, 3, 2}, later = {1, 3, 4}, all_slow = {2, 6, 4};
  auto told = Watch({0, 1, 2}, {first, first, first, later, later, later, later});
  for (const size_t window : {0, 1, 2, 3, 4, 6}) CHECK(told[window] == kNobody);
  REQUIRE(told[5].size() == 1);
  CHECK(told[5][0].rank == 2);
  CHECK(told[5][0].slowdown == Approx(2));
  CHECK_FALSE(told[5][0].among_equals);
  // All become slower together, or others faster: none of them is a straggler.
  for (const auto& none : Watch({0, 1, 2}, {first, first, first, all_slow, all_slow, all_slow}))
    CHECK(none == kNobody);
  const std::vector<double> faster = {0.5, 1.5, 2};
  for (const auto& none : Watch({0, 1, 2}, {first, first, first, faster, faster, faster}))
    CHECK(none == kNobody);
}

TEST_CASE("a rank without work, or alone, is compared with nothing", "[straggler][cpu]") {
  for (const auto& told : Watch({0}, {{1}, {1}, {1}, {9}, {9}, {9}})) CHECK(told == kNobody);
  for (const auto& told : Watch({0, 0}, Windows(5, {0, 2}))) CHECK(told == kNobody);
}

TEST_CASE("a straggler is told with its machine and what to do", "[straggler][cpu]") {
  CHECK(Describe({1, 1.6, true}, {"node1", "node2"}) ==
        "rank 1 on node2 computes 1.60 times as long for the same work as the other ranks with its "
        "layers, over the last 30 steps; all ranks wait for it: look for other work on that "
        "machine, or a slower or throttled device");
  CHECK_THAT(Describe({0, 2, false}, {"node1", "node2"}),
             Catch::Matchers::Contains("rank 0 on node1") &&
                 Catch::Matchers::Contains("at the start of the run"));
}

}  // namespace
}  // namespace equipoise
