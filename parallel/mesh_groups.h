#pragma once

#include <map>
#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/mesh.h"

namespace equipoise {

// The groups of a rank of a mesh, one for each axis: the ranks that differ from it along that axis
// alone, in order of their coordinate there; and those that hold the same weights.
struct MeshGroups {
  // Collective over `world`, whose size must be the mesh's. Groups of one communicate nothing. Of
  // the ranks with the same weights, `shards` neighbours each share out state (Plan::shards()).
  // REQUIRES: a divisor of their number; 0: all of them.
  MeshGroups(const Mesh& mesh, Communicator& world, int shards = 0);

  // REQUIRES: an axis of the mesh.
  Communicator& along(Axis axis) const;
  // The ranks that work on the same micro-batches in the same stages: they differ along `tensor`
  // and `context`. A group for each of these axes that has several ranks.
  std::vector<Communicator*> same_batches() const;
  // The ranks with the same weights, whose gradients are summed: they differ along `data` and
  // `context`, in order of the coordinate along data, then along context.
  Communicator& same_weights() const { return same_weights_ ? *same_weights_ : along(Axis::kData); }
  // Those of them that share out one copy of their state, in order.
  Communicator& shards() const { return shards_ ? *shards_ : same_weights(); }
  // The ranks that hold a copy of this rank's share, in order; null: there is no other.
  Communicator* shard_copies() const { return shard_copies_.get(); }

  Mesh mesh;
  MeshCoordinates at;

 private:
  std::map<Axis, std::unique_ptr<Communicator>> groups_;
  std::unique_ptr<Communicator> same_weights_;           // null: those of the data axis
  std::unique_ptr<Communicator> shards_, shard_copies_;  // null: all of the former, none
};

}  // namespace equipoise
