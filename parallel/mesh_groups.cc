#include "parallel/mesh_groups.h"

#include "configs/base/error.h"

namespace equipoise {
MeshGroups::MeshGroups(const Mesh& the_mesh, Communicator& world) : mesh(the_mesh) {
  EQUIPOISE_CHECK(mesh.size() == world.size(), "a mesh of ", mesh.size(), " ranks in a world of ",
                  world.size());
  const int rank = world.rank();
  at = mesh.Coordinates(rank);
  for (const auto& [axis, size] : mesh.axes()) {
    groups_.push_back(world.Split(mesh.GroupIndex(rank, axis), at[axis], AxisName(axis)));
  }
}

Communicator& MeshGroups::along(Axis axis) const {
  size_t i = 0;
  while (i < groups_.size() && mesh.axes()[i].axis != axis) ++i;
  EQUIPOISE_CHECK(i < groups_.size(), "a mesh without an axis ", AxisName(axis));
  return *groups_[i];
}

}  // namespace equipoise
