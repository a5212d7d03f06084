#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace equipoise {

enum class Axis { kData, kPipeline, kTensor };
inline constexpr std::array<Axis, 3> kAxes = {Axis::kData, Axis::kPipeline, Axis::kTensor};

// "data", "pipeline", "tensor"
std::string AxisName(Axis axis);

// Where a rank stands on each axis.
struct MeshCoordinates {
  int data = 0, pipeline = 0, tensor = 0;
  bool operator==(const MeshCoordinates&) const = default;
};

// The ranks on named axes. Ranks of a tensor group are neighbours, since they talk most and
// mpirun places neighbours on one machine; then come pipeline and data:
//   rank = (data * pipeline size + pipeline) * tensor size + tensor
class Mesh {
 public:
  // Throws ConfigError when a size is below 1 or there are more ranks than an int counts.
  Mesh(int data, int pipeline, int tensor);

  int size() const { return data_ * pipeline_ * tensor_; }
  int size(Axis axis) const;

  // REQUIRES: coordinates within the sizes; 0 <= rank < size().
  int Rank(const MeshCoordinates& at) const;
  MeshCoordinates Coordinates(int rank) const;
  int Coordinate(int rank, Axis axis) const;

  // The ranks that differ from `rank` along `axis` alone, itself among them, in order of their
  // coordinate there.
  std::vector<int> Group(int rank, Axis axis) const;
  // Which of an axis's groups holds the rank: equal for the members of one group. With Coordinate()
  // as key, the arguments of Communicator::Split.
  int GroupIndex(int rank, Axis axis) const;

 private:
  int data_, pipeline_, tensor_;
};

// Two ranks of one tensor group that are on different machines, the first such pair of neighbours;
// nothing where every tensor group is on one machine. `machines`: of each rank, by any number.
// REQUIRES: one for each rank of the mesh.
std::optional<std::pair<int, int>> TensorRanksApart(const Mesh& mesh,
                                                    const std::vector<int>& machines);

// The most ranks n such that ranks 0 to n - 1 are on one machine, n to 2n - 1 on one, and so on.
int RanksPerMachine(const std::vector<int>& machines);

}  // namespace equipoise
