#include "parallel/mesh_groups.h"

#include "configs/base/error.h"

namespace equipoise {
namespace {

std::unique_ptr<Communicator> GroupAlong(const Mesh& mesh, Axis axis, Communicator& world) {
  const int rank = world.rank();
  return world.Split(mesh.GroupIndex(rank, axis), mesh.Coordinate(rank, axis), AxisName(axis));
}

}  // namespace

MeshGroups::MeshGroups(const Mesh& the_mesh, Communicator& world) : mesh(the_mesh) {
  EQUIPOISE_CHECK(mesh.size() == world.size(), "a mesh of ", mesh.size(), " ranks in a world of ",
                  world.size());
  at = mesh.Coordinates(world.rank());
  data = GroupAlong(mesh, Axis::kData, world);
  pipeline = GroupAlong(mesh, Axis::kPipeline, world);
  tensor = GroupAlong(mesh, Axis::kTensor, world);
}

}  // namespace equipoise
