#pragma once

#include <map>
#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/mesh.h"

namespace equipoise {

// The groups of a rank of a mesh, one for each axis: the ranks that differ from it along that axis
// alone, in order of their coordinate there.
struct MeshGroups {
  // Collective over `world`, whose size must be the mesh's. Groups of one communicate nothing.
  MeshGroups(const Mesh& mesh, Communicator& world);

  // REQUIRES: an axis of the mesh.
  Communicator& along(Axis axis) const;

  Mesh mesh;
  MeshCoordinates at;

 private:
  std::map<Axis, std::unique_ptr<Communicator>> groups_;
};

}  // namespace equipoise
