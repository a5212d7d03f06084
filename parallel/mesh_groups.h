#pragma once

#include <map>
#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/mesh.h"

namespace equipoise {

// The groups of a rank of a mesh, one for each axis: the ranks that differ from it along that axis
// alone, in order of their coordinate there; and those that hold the same weights.
struct MeshGroups {
  // Collective over `world`, whose size must be the mesh's. Groups of one communicate nothing.
  MeshGroups(const Mesh& mesh, Communicator& world);

  // REQUIRES: an axis of the mesh.
  Communicator& along(Axis axis) const;
  // The ranks with the same weights, whose gradients are summed: they differ along `data` and
  // `context`, in order of the coordinate along data, then along context.
  Communicator& same_weights() const { return same_weights_ ? *same_weights_ : along(Axis::kData); }

  Mesh mesh;
  MeshCoordinates at;

 private:
  std::map<Axis, std::unique_ptr<Communicator>> groups_;
  std::unique_ptr<Communicator> same_weights_;  // null: those of the data axis
};

}  // namespace equipoise
