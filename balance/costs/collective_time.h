#pragma once

#include "balance/costs/cluster.h"
#include "balance/costs/profile.h"
#include "parallel/plan.h"

namespace equipoise {

// Seconds of ring collectives over `ranks` ranks, as in Patarasuk and Yuan, "Bandwidth optimal
// all-reduce algorithms", 2009. `bytes` are those of the whole tensor. 0 for one rank.
double AllReduceSeconds(double bytes, int ranks, const LinkModel& link);
// All-gather and reduce-scatter, in which each rank has one part of the tensor.
double AllGatherSeconds(double bytes, int ranks, const LinkModel& link);
inline double ReduceScatterSeconds(double bytes, int ranks, const LinkModel& link) {
  return AllGatherSeconds(bytes, ranks, link);
}

// Collectives that run beside kernels.
struct CollectiveLoad {
  double seconds = 0, bytes = 0;  // bytes: that this rank receives, and sends
};
// Seconds of `compute_s` of kernels beside a transfer: the longer of the two, and what the kernels
// lose to the multiprocessors and the memory bandwidth of the transfer.
double BesideSeconds(double compute_s, const CollectiveLoad& transfer, const Cluster& cluster);

// How much longer a step takes because all ranks wait for the slowest: 1 or more.
double StragglerFactor(const Cluster& cluster, int ranks);

// Whether every group of `tensor` consecutive ranks lies in one node.
bool FitsNode(const Cluster& cluster, int tensor);

// How many of several islands (DiLoCo) of so many ranks each, side by side, one node holds at least
// a part of.
int IslandsOfNode(const Cluster& cluster, int ranks, int islands);

// The links of a plan's groups, with its ranks placed on the nodes in order (parallel/mesh.h). The
// link inside a node where the whole group is in one, else that between nodes; rings use the
// adapters of all of a group's ranks in a node.
LinkModel TensorLink(const Cluster& cluster, const Plan& plan);
// Of a group of `ranks` ranks at a distance of `stride`, the first at the start of a node.
LinkModel GroupLink(const Cluster& cluster, int ranks, int stride);
LinkModel DataLink(const Cluster& cluster, const Plan& plan);
// The ranks over which one copy of sharded state is spread, at the same distance.
LinkModel ShardLink(const Cluster& cluster, const Plan& plan, int shards);
// Between the copies of one shard.
LinkModel CopyLink(const Cluster& cluster, const Plan& plan, int shards);
// The link between two ranks of a pipeline, the slowest over all data ranks' pipelines.
LinkModel PipelineLink(const Cluster& cluster, const Plan& plan, int from, int to);

// The cluster with the links inside a node that the profile measured between two ranks. A link
// without a limit (bytes_per_s 0) is kept.
Cluster WithMeasuredLinks(Cluster cluster, const Profile& profile);

}  // namespace equipoise
