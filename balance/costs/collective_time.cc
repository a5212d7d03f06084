#include "balance/costs/collective_time.h"

#include <algorithm>

namespace equipoise {
namespace {

double TransferSeconds(double bytes, const LinkModel& link) {
  return link.bytes_per_s > 0 ? bytes / link.bytes_per_s : 0;
}

// The link of a group of `ranks` ranks at a distance of `stride`, the first at the start of a node.
LinkModel GroupLink(const Cluster& cluster, int ranks, int stride) {
  const int per_node = cluster.devices_per_node;
  if (FitsNode(cluster, ranks * stride)) return cluster.intra_ring;
  LinkModel link = cluster.inter;
  const int in_node = std::max(1, per_node / stride);
  link.bytes_per_s = std::min(cluster.intra_ring.bytes_per_s, in_node * link.bytes_per_s);
  return link;
}

}  // namespace

double AllReduceSeconds(double bytes, int ranks, const LinkModel& link) {
  return 2 * AllGatherSeconds(bytes, ranks, link);
}

double AllGatherSeconds(double bytes, int ranks, const LinkModel& link) {
  if (ranks <= 1) return 0;
  const double steps = ranks - 1;
  return steps * (link.latency_s + TransferSeconds(bytes / ranks, link));
}

bool FitsNode(const Cluster& cluster, int tensor) {
  return tensor <= cluster.devices_per_node &&
         (cluster.nodes == 1 || cluster.devices_per_node % tensor == 0);
}

LinkModel TensorLink(const Cluster& cluster, const Plan& plan) {
  return GroupLink(cluster, plan.tensor(), 1);
}

LinkModel DataLink(const Cluster& cluster, const Plan& plan) {
  return GroupLink(cluster, plan.data(), plan.pipeline() * plan.tensor());
}

LinkModel PipelineLink(const Cluster& cluster, const Plan& plan, int from, int to) {
  for (int data = 0; data < plan.data(); ++data) {
    const int first = data * plan.pipeline();
    const int a = (first + from) * plan.tensor() / cluster.devices_per_node;
    const int b = (first + to) * plan.tensor() / cluster.devices_per_node;
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
  return cluster;
}

}  // namespace equipoise
