#include "parallel/mesh.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {

std::string AxisName(Axis axis) {
  switch (axis) {
    case Axis::kData:
      return "data";
    case Axis::kPipeline:
      return "pipeline";
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
    case Axis::kTensor:
      break;
  }
  return tensor;
}

int MeshCoordinates::operator[](Axis axis) const {
  MeshCoordinates copy = *this;
  return copy[axis];
}

Mesh::Mesh(std::vector<AxisSize> axes) : axes_(std::move(axes)) {
  int64_t ranks = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const auto [axis, size] = axes_[i];
    for (size_t before = 0; before < i; ++before) {
      EQUIPOISE_CHECK(axes_[before].axis != axis, "axis ", AxisName(axis), " twice");
    }
    if (size < 1) {
      throw ConfigError(fmt::format("parallel.{}: {} ranks; give 1 or more", AxisName(axis), size));
    }
    ranks *= size;
    if (ranks > std::numeric_limits<int>::max()) {
      throw ConfigError(
          fmt::format("parallel.{}: the mesh has too many ranks; give less", AxisName(axis)));
    }
  }
  size_ = static_cast<int>(ranks);
}

Mesh::Extent Mesh::Find(Axis axis) const {
  int stride = size_;
  for (const AxisSize& each : axes_) {
    stride /= each.size;
    if (each.axis == axis) return {each.size, stride};
  }
  return {};
}

int Mesh::Rank(const MeshCoordinates& at) const {
  int rank = 0;
  for (const auto& [axis, size] : axes_) {
    EQUIPOISE_CHECK(at[axis] >= 0 && at[axis] < size, "no rank at ", AxisName(axis), " ", at[axis],
                    " of ", size);
    rank = rank * size + at[axis];
  }
  return rank;
}

MeshCoordinates Mesh::Coordinates(int rank) const {
  EQUIPOISE_CHECK(rank >= 0 && rank < size(), "rank ", rank, " of ", size());
  MeshCoordinates at;
  for (auto each = axes_.rbegin(); each != axes_.rend(); ++each) {
    at[each->axis] = rank % each->size;
    rank /= each->size;
  }
  return at;
}

std::vector<int> Mesh::Group(int rank, Axis axis) const {
  const auto [size, stride] = Find(axis);
  const int first = rank - Coordinate(rank, axis) * stride;
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

int Mesh::GroupIndex(int rank, Axis axis) const {
  EQUIPOISE_CHECK(rank >= 0 && rank < size_, "rank ", rank, " of ", size_);
  const auto [size, stride] = Find(axis);
  return rank / (stride * size) * stride + rank % stride;
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
