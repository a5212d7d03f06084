#include "parallel/mesh_groups.h"

#include "configs/base/error.h"
#include "parallel/comm/single_communicator.h"

namespace equipoise {
MeshGroups::MeshGroups(const Mesh& the_mesh, Communicator& world, int shards) : mesh(the_mesh) {
  EQUIPOISE_CHECK(mesh.size() == world.size(), "a mesh of ", mesh.size(), " ranks in a world of ",
                  world.size());
  const int rank = world.rank();
  at = mesh.Coordinates(rank);
  for (const auto& [axis, size] : mesh.axes()) {
    // Numbers of groups are few: a group of one rank takes none.
    groups_[axis] = size == 1 ? std::make_unique<SingleCommunicator>(AxisName(axis))
                              : world.Split(mesh.GroupIndex(rank, axis), at[axis], AxisName(axis));
  }
  if (mesh.size(Axis::kContext) > 1) {
    same_weights_ = world.Split(mesh.GroupIndex(rank, Axis::kData, Axis::kContext),
                                at.data * mesh.size(Axis::kContext) + at.context, "weights");
  }
  const int holders = same_weights().size(), holder = same_weights().rank();
  if (shards == 0 || shards == holders) return;
  EQUIPOISE_CHECK(shards > 0 && holders % shards == 0, shards, " shards on ", holders, " ranks");
  shards_ = same_weights().Split(holder / shards, holder % shards, "shards");
  shard_copies_ = same_weights().Split(holder % shards, holder / shards, "copies of shards");
}

std::vector<Communicator*> MeshGroups::same_batches() const {
  std::vector<Communicator*> groups;
  for (const Axis axis : {Axis::kTensor, Axis::kContext}) {
    if (mesh.size(axis) > 1) groups.push_back(&along(axis));
  }
  return groups;
}

Communicator& MeshGroups::along(Axis axis) const {
  const auto found = groups_.find(axis);
  EQUIPOISE_CHECK(found != groups_.end(), "a mesh without an axis ", AxisName(axis));
  return *found->second;
}

}  // namespace equipoise
