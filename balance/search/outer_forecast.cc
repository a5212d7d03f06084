#include "balance/search/outer_forecast.h"

#include <algorithm>

#include "balance/costs/collective_time.h"
#include "balance/costs/stage_costs.h"

// Every rank sums its share of the weights with the ranks in its place on the other islands, all at
// once. On GPUs the fp32 outer weights come from host memory, what the sum gives goes there, and
// the new weights come back.

namespace equipoise {
namespace {

constexpr double kWeightBytes = 4;  // in host memory

// Trained parameters that a rank of each pipeline rank updates.
std::vector<double> Shares(const CostModel& costs, const Plan& plan) {
  std::vector<double> shares(static_cast<size_t>(plan.pipeline()));
  for (int rank = 0; rank < plan.pipeline(); ++rank) {
    for (const int stage : plan.StagesOf(rank)) {
      const auto trained = static_cast<double>(ParametersOfStage(costs, plan, stage).trained);
      const int copies = plan.ComponentOfStage(stage).encoder ? plan.encoder_copies() : 1;
      shares[static_cast<size_t>(rank)] += trained / copies / plan.shards();
    }
  }
  return shares;
}

LinkModel LinkOfIslands(const Plan& plan, const Cluster& cluster, int islands) {
  LinkModel link =
      FitsNode(cluster, plan.num_ranks() * islands) ? cluster.intra_ring : cluster.inter;
  if (cluster.island_bytes_per_s > 0) link.bytes_per_s = cluster.island_bytes_per_s;
  return link;
}

}  // namespace

OuterForecast ForecastOuterStep(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                                int islands, int64_t element_bytes) {
  OuterForecast forecast;
  forecast.between_nodes = !FitsNode(cluster, plan.num_ranks() * islands);
  const LinkModel link = LinkOfIslands(plan, cluster, islands);
  const double ring = 2.0 * (islands - 1) / islands;
  for (const double share : Shares(costs, plan)) {
    const double bytes = static_cast<double>(element_bytes) * share;
    double seconds = AllReduceSeconds(bytes, islands, link);
    if (cluster.multiprocessors > 0)
      seconds += 3 * kWeightBytes * share / cluster.host.link_bytes_per_s;
    forecast.seconds = std::max(forecast.seconds, seconds);
    forecast.bytes += ring * bytes / plan.pipeline();
  }
  return forecast;
}

}  // namespace equipoise
