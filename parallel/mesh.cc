#include "parallel/mesh.h"

#include <cstdint>
#include <limits>
#include <numeric>

#include "configs/base/error.h"

namespace equipoise {
namespace {

int& At(MeshCoordinates& coordinates, Axis axis) {
  switch (axis) {
    case Axis::kData:
      return coordinates.data;
    case Axis::kPipeline:
      return coordinates.pipeline;
    case Axis::kTensor:
      break;
  }
  return coordinates.tensor;
}

}  // namespace

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

Mesh::Mesh(int data, int pipeline, int tensor) : data_(data), pipeline_(pipeline), tensor_(tensor) {
  int64_t ranks = 1;
  for (const Axis axis : kAxes) {
    if (size(axis) < 1) {
      throw ConfigError("parallel." + AxisName(axis) + ": " + std::to_string(size(axis)) +
                        " ranks; give 1 or more");
    }
    ranks *= size(axis);
    if (ranks > std::numeric_limits<int>::max()) {
      throw ConfigError("parallel." + AxisName(axis) + ": the mesh has too many ranks; give less");
    }
  }
}

int Mesh::size(Axis axis) const {
  MeshCoordinates sizes{data_, pipeline_, tensor_};
  return At(sizes, axis);
}

int Mesh::Rank(const MeshCoordinates& at) const {
  EQUIPOISE_CHECK(at.data >= 0 && at.data < data_ && at.pipeline >= 0 && at.pipeline < pipeline_ &&
                      at.tensor >= 0 && at.tensor < tensor_,
                  "no rank at data ", at.data, ", pipeline ", at.pipeline, ", tensor ", at.tensor);
  return (at.data * pipeline_ + at.pipeline) * tensor_ + at.tensor;
}

MeshCoordinates Mesh::Coordinates(int rank) const {
  EQUIPOISE_CHECK(rank >= 0 && rank < size(), "rank ", rank, " of ", size());
  return {rank / tensor_ / pipeline_, rank / tensor_ % pipeline_, rank % tensor_};
}

int Mesh::Coordinate(int rank, Axis axis) const {
  MeshCoordinates at = Coordinates(rank);
  return At(at, axis);
}

std::vector<int> Mesh::Group(int rank, Axis axis) const {
  MeshCoordinates at = Coordinates(rank);
  std::vector<int> ranks;
  for (int i = 0; i < size(axis); ++i) {
    At(at, axis) = i;
    ranks.push_back(Rank(at));
  }
  return ranks;
}

int Mesh::GroupIndex(int rank, Axis axis) const {
  const MeshCoordinates at = Coordinates(rank);
  switch (axis) {
    case Axis::kData:
      return at.pipeline * tensor_ + at.tensor;
    case Axis::kPipeline:
      return at.data * tensor_ + at.tensor;
    case Axis::kTensor:
      break;
  }
  return at.data * pipeline_ + at.pipeline;
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
