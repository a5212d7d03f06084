#include "balance/search/outer_forecast.h"

#include <algorithm>
#include <vector>

#include "balance/costs/collective_time.h"
#include "balance/costs/cost_model.h"
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

}  // namespace

IslandsForecast ForecastIslands(const PlanRequest& request, const Plan& plan) {
  IslandsForecast forecast{request.islands.count, request.islands.every};
  if (forecast.every == 0) return forecast;
  const Cluster& cluster = request.cluster;
  const CostModel costs(request.model, cluster, request.CostOptions(plan), request.profile.get());
  forecast.between_nodes = !FitsNode(cluster, plan.num_ranks() * forecast.count);
  LinkModel link = GroupLink(cluster, forecast.count, plan.num_ranks());
  if (cluster.island_bytes_per_s > 0) link.bytes_per_s = cluster.island_bytes_per_s;
  const double ring = 2.0 * (forecast.count - 1) / forecast.count;
  for (const double share : Shares(costs, plan)) {
    const double bytes = static_cast<double>(request.islands.element_bytes) * share;
    double seconds = AllReduceSeconds(bytes, forecast.count, link);
    if (cluster.multiprocessors > 0)
      seconds += 3 * kWeightBytes * share / cluster.host.link_bytes_per_s;
    forecast.outer_s = std::max(forecast.outer_s, seconds);
    forecast.outer_bytes += ring * bytes / plan.pipeline();
  }
  return forecast;
}

PlanForecast OfAllIslands(PlanForecast one, const IslandsForecast& islands) {
  RankTraffic& traffic = one.traffic;
  (islands.between_nodes ? traffic.between_nodes_bytes : traffic.within_node_bytes) +=
      islands.outer_bytes_per_step();
  const double step_s = one.step_s.p50;
  const double rate = islands.count * step_s / (step_s + islands.outer_s_per_step());
  one.tokens_per_s *= rate;
  one.packs_per_s *= rate;
  return one;
}

}  // namespace equipoise
