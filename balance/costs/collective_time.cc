#include "balance/costs/collective_time.h"

#include <algorithm>
#include <cmath>

namespace equipoise {
namespace {

// Multiprocessors that NCCL's kernels take, one for each of its channels on NVLink (`NCCL INFO ...
// coll channels`). With the memory that a transfer reads and writes this gives what was measured:
// beside an all-gather, products on H100 fall from 80 to 47 % of the peak (NVIDIA developer forum,
// topic 337991).
constexpr double kCollectiveMultiprocessors = 16;
// Of machines, 0.5 % take 10 % longer (MegaScale, arXiv 2402.15627, section 6.3).
constexpr double kSlowMachines = 0.005, kSlowdown = 0.1;

double TransferSeconds(double bytes, const LinkModel& link) {
  return link.bytes_per_s > 0 ? bytes / link.bytes_per_s : 0;
}

// How far apart ranks with the same weights are, in the mean: context ranks are nearer to each
// other than data ranks.
int WeightsStride(const Plan& plan) { return plan.num_ranks() / plan.same_weights(); }

}  // namespace

LinkModel GroupLink(const Cluster& cluster, int ranks, int stride) {
  const int per_node = cluster.devices_per_node;
  if (FitsNode(cluster, ranks * stride)) return cluster.intra_ring;
  LinkModel link = cluster.inter;
  const int in_node = std::max(1, per_node / stride);
  // One step of the ring in `in_node` leaves the node.
  link.latency_s = (link.latency_s + (in_node - 1) * cluster.intra_ring.latency_s) / in_node;
  link.bytes_per_s = std::min(cluster.intra_ring.bytes_per_s, in_node * link.bytes_per_s);
  return link;
}

double AllReduceSeconds(double bytes, int ranks, const LinkModel& link) {
  return 2 * AllGatherSeconds(bytes, ranks, link);
}

double AllGatherSeconds(double bytes, int ranks, const LinkModel& link) {
  if (ranks <= 1) return 0;
  const double steps = ranks - 1;
  return steps * (link.latency_s + TransferSeconds(bytes / ranks, link));
}

double BesideSeconds(double compute_s, const CollectiveLoad& transfer, const Cluster& cluster) {
  if (transfer.seconds <= 0) return compute_s;
  if (cluster.multiprocessors == 0) return std::max(compute_s, transfer.seconds);
  const double memory_s =
      2 * transfer.bytes / (cluster.memory_bytes_per_s * cluster.memory_efficiency);
  const double lost =
      kCollectiveMultiprocessors / cluster.multiprocessors * transfer.seconds + memory_s;
  const double beside = std::min(1.0, compute_s / transfer.seconds);
  return std::max(compute_s + beside * lost, transfer.seconds);
}

double StragglerFactor(const Cluster& cluster, int ranks) {
  if (cluster.multiprocessors == 0) return 1;
  const double nodes = std::ceil(static_cast<double>(ranks) / cluster.devices_per_node);
  return 1 + kSlowdown * (1 - std::pow(1 - kSlowMachines, nodes));
}

bool FitsNode(const Cluster& cluster, int tensor) {
  return tensor <= cluster.devices_per_node &&
         (cluster.nodes == 1 || cluster.devices_per_node % tensor == 0);
}

LinkModel TensorLink(const Cluster& cluster, const Plan& plan) {
  return GroupLink(cluster, plan.tensor(), 1);
}

LinkModel DataLink(const Cluster& cluster, const Plan& plan) {
  return ShardLink(cluster, plan, plan.same_weights());
}

LinkModel ShardLink(const Cluster& cluster, const Plan& plan, int shards) {
  return GroupLink(cluster, shards, WeightsStride(plan));
}

int IslandsOfNode(const Cluster& cluster, int ranks, int islands) {
  return std::clamp(cluster.devices_per_node / ranks, 1, islands);
}

LinkModel CopyLink(const Cluster& cluster, const Plan& plan, int shards) {
  return GroupLink(cluster, plan.same_weights() / shards, WeightsStride(plan) * shards);
}

LinkModel PipelineLink(const Cluster& cluster, const Plan& plan, int from, int to) {
  for (int data = 0; data < plan.data(); ++data) {
    const int first = data * plan.pipeline();
    const int ranks = plan.context() * plan.tensor();  // of a place in the pipeline
    const int a = (first + from) * ranks / cluster.devices_per_node;
    const int b = (first + to) * ranks / cluster.devices_per_node;
    if (a != b) return cluster.inter;
  }
  return cluster.intra;
}

Cluster WithMeasuredLinks(Cluster cluster, const Profile& profile) {
  const auto limited = [](const LinkModel& a, const LinkModel& b) {
    return a.bytes_per_s > 0 && b.bytes_per_s > 0;
  };
  if (limited(profile.point_to_point, cluster.intra)) cluster.intra = profile.point_to_point;
  if (limited(profile.all_reduce, cluster.intra_ring)) {
    cluster.intra_ring = profile.all_reduce;
    cluster.intra_ring.latency_s /= 2;  // two ranks: two steps
  }
  if (profile.host_link_bytes_per_s > 0)
    cluster.host.link_bytes_per_s = profile.host_link_bytes_per_s;
  return cluster;
}

}  // namespace equipoise
