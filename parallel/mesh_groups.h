#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/mesh.h"

namespace equipoise {

// This rank's groups: the ranks that differ from it along one axis alone, in order of their
// coordinate there.
struct MeshGroups {
  // Collective over `world`, whose size must be the mesh's. Groups of one communicate nothing.
  MeshGroups(const Mesh& mesh, Communicator& world);

  Mesh mesh;
  MeshCoordinates at;
  std::unique_ptr<Communicator> data, pipeline, tensor;
};

}  // namespace equipoise
