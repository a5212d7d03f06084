#include "parallel/mesh.h"

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <set>

#include "configs/base/error.h"

namespace equipoise {
namespace {

Mesh MeshOf(int data, int pipeline, int tensor) {
  return Mesh({{Axis::kData, data}, {Axis::kPipeline, pipeline}, {Axis::kTensor, tensor}});
}

TEST_CASE("a rank's coordinates lead back to it", "[mesh]") {
  for (const int data : {1, 2, 3, 5}) {
    for (const int pipeline : {1, 2, 7}) {
      for (const int tensor : {1, 4, 6}) {
        const Mesh mesh = MeshOf(data, pipeline, tensor);
        REQUIRE(mesh.size() == data * pipeline * tensor);
        for (int rank = 0; rank < mesh.size(); ++rank) {
          REQUIRE(mesh.Rank(mesh.Coordinates(rank)) == rank);
        }
      }
    }
  }
}

TEST_CASE("the groups of every axis split the ranks, in order of the coordinate", "[mesh]") {
  const Mesh mesh = MeshOf(3, 2, 4);
  for (const auto& [axis, along] : mesh.axes()) {
    std::map<int, std::vector<int>> groups;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const std::vector<int> group = mesh.Group(rank, axis);
      REQUIRE(static_cast<int>(group.size()) == along);
      REQUIRE(group[mesh.Coordinate(rank, axis)] == rank);
      const auto [entry, first] = groups.emplace(mesh.GroupIndex(rank, axis), group);
      REQUIRE(entry->second == group);
    }
    std::set<int> all;
    for (const auto& [index, group] : groups) all.insert(group.begin(), group.end());
    REQUIRE(static_cast<int>(groups.size()) == mesh.size() / mesh.size(axis));
    REQUIRE(static_cast<int>(all.size()) == mesh.size());
  }
}

TEST_CASE("ranks of a tensor group are neighbours", "[mesh]") {
  const Mesh mesh = MeshOf(2, 2, 2);
  CHECK(mesh.Group(5, Axis::kTensor) == std::vector<int>{4, 5});
  CHECK(mesh.Group(5, Axis::kPipeline) == std::vector<int>{5, 7});
  CHECK(mesh.Group(5, Axis::kData) == std::vector<int>{1, 5});
  CHECK(mesh.Coordinates(5) == MeshCoordinates{.data = 1, .pipeline = 0, .tensor = 1});
}

TEST_CASE("ranks with the same weights differ along data and context", "[mesh]") {
  const Mesh mesh(
      {{Axis::kData, 2}, {Axis::kPipeline, 2}, {Axis::kContext, 2}, {Axis::kTensor, 2}});
  CHECK(mesh.Group(5, Axis::kContext) == std::vector<int>{5, 7});
  std::map<int, std::vector<int>> groups;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const std::vector<int> group = mesh.Group(rank, Axis::kData, Axis::kContext);
    const MeshCoordinates at = mesh.Coordinates(rank);
    CHECK(group.at(static_cast<size_t>(at.data * 2 + at.context)) == rank);
    const int index = mesh.GroupIndex(rank, Axis::kData, Axis::kContext);
    CHECK(groups.emplace(index, group).first->second == group);
  }
  CHECK(groups.size() == 4);
  CHECK(groups[3] == std::vector<int>{5, 7, 13, 15});
}

TEST_CASE("axes lie in the order that a mesh gives them, and others have one rank", "[mesh]") {
  const Mesh mesh({{Axis::kPipeline, 2}, {Axis::kData, 3}});
  CHECK(mesh.size() == 6);
  CHECK(mesh.size(Axis::kTensor) == 1);
  CHECK(mesh.Rank({.data = 1, .pipeline = 1}) == 4);
  CHECK(mesh.Coordinates(4) == MeshCoordinates{.data = 1, .pipeline = 1, .tensor = 0});
  CHECK(mesh.Group(4, Axis::kData) == std::vector<int>{3, 4, 5});
  CHECK(mesh.Group(4, Axis::kPipeline) == std::vector<int>{1, 4});
  CHECK(mesh.Group(4, Axis::kTensor) == std::vector<int>{4});
  CHECK(mesh.GroupIndex(4, Axis::kTensor) == 4);
  CHECK_THROWS_WITH(Mesh({{Axis::kData, 2}, {Axis::kData, 2}}),
                    Catch::Matchers::Contains("axis data twice"));
}

TEST_CASE("a slice is a mesh of some of the ranks, which keep their numbers", "[mesh]") {
  const Mesh mesh = MeshOf(2, 5, 3);
  const Mesh slice = mesh.Slice(Axis::kPipeline, 1, 3);
  CHECK(slice.size() == 2 * 3 * 3);
  CHECK(slice.size(Axis::kPipeline) == 3);
  int held = 0;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const MeshCoordinates at = mesh.Coordinates(rank);
    const bool inside = at.pipeline >= 1 && at.pipeline < 4;
    REQUIRE(slice.Holds(rank) == inside);
    if (!inside) continue;
    ++held;
    MeshCoordinates there = at;
    --there.pipeline;
    CHECK(slice.Coordinates(rank) == there);
    CHECK(slice.Rank(there) == rank);
    CHECK(slice.Group(rank, Axis::kData) == mesh.Group(rank, Axis::kData));
    CHECK(slice.Group(rank, Axis::kTensor) == mesh.Group(rank, Axis::kTensor));
    CHECK(slice.Group(rank, Axis::kPipeline).size() == 3);
  }
  CHECK(held == slice.size());
  CHECK_FALSE(slice.Holds(-1));
  CHECK_FALSE(slice.Holds(mesh.size()));
  CHECK_THROWS_WITH(slice.Coordinates(0), Catch::Matchers::Contains("rank 0 is not of this mesh"));
  // A slice of a slice, and along the axes at both ends.
  CHECK(slice.Slice(Axis::kPipeline, 1, 1) == mesh.Slice(Axis::kPipeline, 2, 1));
  CHECK(mesh.Slice(Axis::kData, 1, 1).Rank({}) == 15);
  CHECK(mesh.Slice(Axis::kTensor, 2, 1).Group(5, Axis::kPipeline) ==
        std::vector<int>{2, 5, 8, 11, 14});
  CHECK_THROWS_WITH(mesh.Slice(Axis::kPipeline, 3, 3),
                    Catch::Matchers::Contains("a slice of 3 from 3 along pipeline, which has 5"));
}

TEST_CASE("a tensor group on two machines is found", "[mesh]") {
  using Pair = std::pair<int, int>;
  const Mesh mesh = MeshOf(1, 3, 2);
  CHECK(TensorRanksApart(mesh, {0, 0, 0, 0, 0, 0}) == std::nullopt);
  CHECK(TensorRanksApart(mesh, {0, 0, 2, 2, 2, 2}) == std::nullopt);
  CHECK(TensorRanksApart(mesh, {0, 0, 0, 3, 3, 3}) == Pair(2, 3));
  CHECK(TensorRanksApart(mesh, {0, 1, 0, 1, 0, 1}) == Pair(0, 1));  // dealt out by turns
  CHECK(TensorRanksApart(MeshOf(3, 2, 1), {0, 1, 0, 1, 0, 1}) == std::nullopt);
}

TEST_CASE("the ranks that a machine holds together", "[mesh]") {
  CHECK(RanksPerMachine({0}) == 1);
  CHECK(RanksPerMachine({0, 0, 0, 0, 0, 0}) == 6);
  CHECK(RanksPerMachine({0, 0, 0, 3, 3, 3}) == 3);
  CHECK(RanksPerMachine({0, 0, 2, 2, 2, 2}) == 2);
  CHECK(RanksPerMachine({0, 0, 0, 0, 1, 1, 1}) == 1);
  CHECK(RanksPerMachine({0, 1, 0, 1}) == 1);  // dealt out by turns
}

TEST_CASE("a mesh without ranks, or with too many, is refused by the axis's name", "[mesh]") {
  CHECK_THROWS_WITH(MeshOf(0, 1, 1), "parallel.data: 0 ranks; give 1 or more");
  CHECK_THROWS_WITH(MeshOf(1, 1, -2), "parallel.tensor: -2 ranks; give 1 or more");
  const int many = std::numeric_limits<int>::max();
  CHECK_THROWS_AS(MeshOf(many, many, many), ConfigError);
}

}  // namespace
}  // namespace equipoise
