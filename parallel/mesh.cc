#include "parallel/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "configs/base/error.h"

namespace equipoise {

std::string AxisName(Axis axis) {
  switch (axis) {
    case Axis::kData:
      return "data";
    case Axis::kPipeline:
      return "pipeline";
    case Axis::kContext:
      return "context";
    case Axis::kTensor:
      break;
  }
  return "tensor";
}

int& MeshCoordinates::operator[](Axis axis) {
  switch (axis) {
    case Axis::kData:
      return data;
    case Axis::kPipeline:
      return pipeline;
    case Axis::kContext:
      return context;
    case Axis::kTensor:
      break;
  }
  return tensor;
}

int MeshCoordinates::operator[](Axis axis) const {
  MeshCoordinates copy = *this;
  return copy[axis];
}

Mesh::Mesh(const std::vector<AxisSize>& axes) {
  int64_t ranks = 1;
  for (const auto& [axis, size] : axes) {
    EQUIPOISE_CHECK(!Has(axis), "axis ", AxisName(axis), " twice");
    if (size < 1) {
      throw ConfigError(fmt::format("parallel.{}: {} ranks; give 1 or more", AxisName(axis), size));
    }
    ranks *= size;
    if (ranks > std::numeric_limits<int>::max()) {
      throw ConfigError(
          fmt::format("parallel.{}: the mesh has too many ranks; give less", AxisName(axis)));
    }
    extents_.push_back({axis, size});
  }
  for (auto each = extents_.rbegin(); each != extents_.rend(); ++each) {
    each->stride = size_;
    size_ *= each->size;
  }
}

std::vector<AxisSize> Mesh::axes() const {
  std::vector<AxisSize> axes;
  axes.reserve(extents_.size());
  for (const Extent& each : extents_) axes.push_back({each.axis, each.size});
  return axes;
}

Mesh::Extent Mesh::Find(Axis axis) const {
  for (const Extent& each : extents_) {
    if (each.axis == axis) return each;
  }
  return {axis, 1, 1};
}

bool Mesh::Has(Axis axis) const {
  return std::any_of(extents_.begin(), extents_.end(),
                     [axis](const Extent& each) { return each.axis == axis; });
}

Mesh Mesh::Slice(Axis axis, int begin, int count) const {
  Mesh slice = *this;
  for (Extent& each : slice.extents_) {
    if (each.axis != axis) continue;
    EQUIPOISE_CHECK(begin >= 0 && count >= 1 && begin + count <= each.size, "a slice of ", count,
                    " from ", begin, " along ", AxisName(axis), ", which has ", each.size);
    slice.first_ += begin * each.stride;
    slice.size_ = size_ / each.size * count;
    each.size = count;
    return slice;
  }
  EQUIPOISE_CHECK(false, "a mesh without an axis ", AxisName(axis));
  return slice;
}

int Mesh::Rank(const MeshCoordinates& at) const {
  int rank = first_;
  for (const auto& [axis, size, stride] : extents_) {
    EQUIPOISE_CHECK(at[axis] >= 0 && at[axis] < size, "no rank at ", AxisName(axis), " ", at[axis],
                    " of ", size);
    rank += at[axis] * stride;
  }
  return rank;
}

bool Mesh::Holds(int rank) const {
  int rest = rank - first_;
  if (rest < 0) return false;
  for (const Extent& each : extents_) {
    if (rest / each.stride >= each.size) return false;
    rest %= each.stride;
  }
  return rest == 0;
}

MeshCoordinates Mesh::Coordinates(int rank) const {
  EQUIPOISE_CHECK(Holds(rank), "rank ", rank, " is not of this mesh of ", size());
  MeshCoordinates at;
  int rest = rank - first_;
  for (const auto& [axis, size, stride] : extents_) {
    at[axis] = rest / stride;
    rest %= stride;
  }
  return at;
}

std::vector<int> Mesh::Group(int rank, Axis axis) const {
  const Extent along = Find(axis);
  const int first = rank - Coordinate(rank, axis) * along.stride;
  std::vector<int> ranks;
  for (int i = 0; i < along.size; ++i) ranks.push_back(first + i * along.stride);
  return ranks;
}

std::vector<int> Mesh::Group(int rank, Axis outer, Axis inner) const {
  std::vector<int> ranks;
  for (const int first : Group(rank - Coordinate(rank, inner) * Find(inner).stride, outer)) {
    for (const int each : Group(first, inner)) ranks.push_back(each);
  }
  return ranks;
}

int Mesh::GroupIndex(int rank, Axis axis) const { return GroupIndex(rank, axis, axis); }

// In row-major order of the coordinates along the other axes.
int Mesh::GroupIndex(int rank, Axis outer, Axis inner) const {
  const MeshCoordinates at = Coordinates(rank);
  int index = 0;
  for (const Extent& each : extents_) {
    if (each.axis != outer && each.axis != inner) index = index * each.size + at[each.axis];
  }
  return index;
}

std::optional<std::pair<int, int>> TensorRanksApart(const Mesh& mesh,
                                                    const std::vector<int>& machines) {
  EQUIPOISE_CHECK(static_cast<int>(machines.size()) == mesh.size(), machines.size(),
                  " machines for ", mesh.size(), " ranks");
  for (int rank = 1; rank < mesh.size(); ++rank) {
    const bool same_group =
        mesh.GroupIndex(rank, Axis::kTensor) == mesh.GroupIndex(rank - 1, Axis::kTensor);
    if (same_group && machines[rank] != machines[rank - 1]) return std::pair(rank - 1, rank);
  }
  return std::nullopt;
}

int RanksPerMachine(const std::vector<int>& machines) {
  int common = static_cast<int>(machines.size());
  for (size_t rank = 1; rank < machines.size(); ++rank) {
    if (machines[rank] != machines[rank - 1]) common = std::gcd(common, static_cast<int>(rank));
  }
  return common;
}

}  // namespace equipoise
