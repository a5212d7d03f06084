#pragma once

#include "balance/costs/cluster.h"
#include "balance/costs/profile.h"
#include "parallel/plan.h"

namespace equipoise {

// Seconds of ring collectives over `ranks` ranks, each with `bytes` bytes (of the whole tensor), as
// in Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009. No time for one rank.
double AllReduceSeconds(double bytes, int ranks, const LinkModel& link);
// The whole tensor is made of, or cut into, one part a rank.
double AllGatherSeconds(double bytes, int ranks, const LinkModel& link);
inline double ReduceScatterSeconds(double bytes, int ranks, const LinkModel& link) {
  return AllGatherSeconds(bytes, ranks, link);
}

// Whether the links between `tensor` consecutive ranks never leave a node.
bool FitsNode(const Cluster& cluster, int tensor);

// The links of a plan's groups, with its ranks placed on the nodes in order (parallel/mesh.h).
// Inside a node where the whole group is in one; otherwise between nodes: with several of a group's
// ranks in each node, rings pass through the adapters of all of them.
LinkModel TensorLink(const Cluster& cluster, const Plan& plan);
LinkModel DataLink(const Cluster& cluster, const Plan& plan);
// Between two ranks of a pipeline; the slowest of all data ranks' pipelines.
LinkModel PipelineLink(const Cluster& cluster, const Plan& plan, int from, int to);

// The cluster with the links inside a node as the profile has measured them between two ranks; a
// link without limit (bytes_per_s 0) stays so.
Cluster WithMeasuredLinks(Cluster cluster, const Profile& profile);

}  // namespace equipoise
