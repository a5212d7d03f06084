#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace equipoise {

// A dimension along which ranks share out training.
enum class Axis : uint8_t { kData, kPipeline, kContext, kTensor };

// "data", "pipeline", "context", "tensor"
std::string AxisName(Axis axis);

// Coordinates of a rank in a mesh; 0 on axes that the mesh does not have.
struct MeshCoordinates {
  int data = 0, pipeline = 0, context = 0, tensor = 0;
  int operator[](Axis axis) const;
  int& operator[](Axis axis);
  bool operator==(const MeshCoordinates&) const = default;
};

// One axis of a mesh, and how many ranks there are along it.
struct AxisSize {
  Axis axis;
  int size = 1;
  bool operator==(const AxisSize&) const = default;
};

// A grid of ranks with named axes. A whole mesh numbers them in row-major order: ranks along the
// innermost axis are neighbours. For axes data, pipeline, context, tensor that is
//   rank = ((data * pipeline size + pipeline) * context size + context) * tensor size + tensor
// A slice of a mesh is a mesh of some of its ranks, which keep their numbers. A part of the model
// that is distributed in another way has a mesh of its own over the same ranks.
class Mesh {
 public:
  // Axes from the outermost to the innermost; none: rank 0 alone. Throws ConfigError
  // `parallel.AXIS: ...` when a size is below 1 or there are more ranks than an int counts.
  // REQUIRES: no axis twice.
  explicit Mesh(const std::vector<AxisSize>& axes = {});

  int size() const { return size_; }
  // Ranks along an axis; 1 for one that the mesh does not have.
  int size(Axis axis) const { return Find(axis).size; }
  std::vector<AxisSize> axes() const;
  bool Has(Axis axis) const;

  // The ranks with `begin` <= coordinate < `begin` + `count` along an axis.
  // REQUIRES: the mesh has the axis; 0 <= begin, 1 <= count, begin + count <= size(axis).
  Mesh Slice(Axis axis, int begin, int count) const;

  // REQUIRES: coordinates within the sizes.
  int Rank(const MeshCoordinates& at) const;
  bool Holds(int rank) const;
  // REQUIRES, like all below: Holds(rank).
  MeshCoordinates Coordinates(int rank) const;
  int Coordinate(int rank, Axis axis) const { return Coordinates(rank)[axis]; }

  // The ranks that differ from `rank` along `axis` alone, itself among them, in order of their
  // coordinate there.
  std::vector<int> Group(int rank, Axis axis) const;
  // Which of an axis's groups holds the rank: equal for the members of one group. With Coordinate()
  // as key, the arguments of Communicator::Split.
  int GroupIndex(int rank, Axis axis) const;
  // The same of the ranks that differ along two axes: in order of the coordinate along `outer`,
  // then of that along `inner`.
  std::vector<int> Group(int rank, Axis outer, Axis inner) const;
  int GroupIndex(int rank, Axis outer, Axis inner) const;

  bool operator==(const Mesh&) const = default;

 private:
  // `stride`: how far apart neighbours along the axis are.
  struct Extent {
    Axis axis = Axis::kData;
    int size = 1, stride = 1;
    bool operator==(const Extent&) const = default;
  };
  Extent Find(Axis axis) const;

  std::vector<Extent> extents_;  // from the outermost to the innermost: strides never grow
  int first_ = 0;                // the rank whose coordinates are all 0
  int size_ = 1;
};

// The first pair of neighbouring ranks of one tensor group that are on different machines; nullopt
// where every tensor group is on one machine. `machines` [rank]: any number that tells machines
// apart. REQUIRES: one for each rank of the mesh.
std::optional<std::pair<int, int>> TensorRanksApart(const Mesh& mesh,
                                                    const std::vector<int>& machines);

// The largest n such that ranks 0 to n - 1 are on one machine, n to 2n - 1 on one, and so on.
int RanksPerMachine(const std::vector<int>& machines);

}  // namespace equipoise
