#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "balance/costs/collective_time.h"
#include "balance/search/plan_fit.h"
#include "balance/search/plan_rejection.h"
#include "balance/search/plan_search.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "parallel/schedule/builders.h"

// The plan to train with, or where none fits what comes nearest and what would make it fit.

namespace equipoise {
namespace {

constexpr int kMostGrowth = 64;  // largest factor on the ranks in the search for a fit

// The fewest ranks, by doubling those of the request, on which a plan fits; 0 where there are none.
int RanksThatFit(PlanRequest request) {
  const int nodes = request.cluster.nodes;
  request.pins.data.reset();
  for (int growth = 2; growth <= kMostGrowth; growth *= 2) {
    request.ranks *= 2;
    request.cluster.nodes = nodes * growth;
    try {
      if (SomePlanFits(request)) return request.ranks;
    } catch (const ConfigError&) {
      return 0;  // the global batch cannot be divided any further
    }
  }
  return 0;
}

// The rejection of a plan that was rejected for its state alone, with all the memory that the best
// of its cuts needs.
RejectedPlan WholeMiss(const PlanRequest& request, const Plan& shape) {
  const PlanFitter fitter(request, shape);
  std::optional<RejectedPlan> least;
  for (const std::vector<int>& begins : fitter.CutsToTry(shape)) {
    Plan plan = shape;
    plan.stage_begins = begins;
    const PlanFitter::Fit fit = fitter.FitMemory(plan);
    EQUIPOISE_CHECK(fit.misfit, "a plan fits that was refused for its state");
    RejectedPlan miss = TooLarge(request, std::move(plan), *fit.misfit);
    if (!least || miss.missing_bytes < least->missing_bytes) least = std::move(miss);
  }
  return *least;
}

// The plan that misses least. Plans that were rejected for their state alone, before the cut, miss
// more than their rejection says; all of it is computed for those that might be the nearest.
RejectedPlan NearestMiss(const PlanRequest& request, std::vector<RejectedPlan> rejected) {
  while (true) {
    RejectedPlan& nearest = *std::min_element(rejected.begin(), rejected.end(),
                                              [](const RejectedPlan& a, const RejectedPlan& b) {
                                                return a.missing_bytes < b.missing_bytes;
                                              });
    if (!nearest.plan.stage_begins.empty()) return nearest;
    nearest = WholeMiss(request, nearest.plan);
  }
}

// Whether smaller micro-batches could help.
bool StateFits(const PlanRequest& request, const Plan& plan) {
  const Cluster& cluster = request.cluster;
  const double room = (1 - cluster.reserve_share) * static_cast<double>(cluster.memory_bytes);
  const PlanFitter fitter(request, plan);
  return static_cast<double>(fitter.StateBytesBound(plan)) < room;
}

// Bytes for advice, rounded up to a tenth of a GiB.
std::string GiBThatHold(int64_t bytes) {
  constexpr int64_t kTenth = (int64_t{1} << 30) / 10;
  return GiB((bytes + kTenth) / kTenth * kTenth);
}

// The least that host memory would have to hold for some plan to fit, as settings; empty: not even
// all would do.
std::string FitsOffloaded(PlanRequest request) {
  if (request.cluster.multiprocessors == 0) return "";
  struct Choice {
    ShardedState state;
    const char* setting;
  };
  const PlanPins& pins = request.pins;
  const std::optional<ShardedState> given = pins.sharded;
  // Passes in the bubbles, or of two versions of the weights, need whole gradients beside them.
  const bool whole = (pins.encoder.placement && FillsBubbles(*pins.encoder.placement)) ||
                     (pins.schedule && DelaysUpdates(*pins.schedule));
  for (const auto& [state, setting] :
       {Choice{ShardedState::kOptimizer, "[optimizer]"},
        Choice{ShardedState::kGradients, "[optimizer, gradients]"},
        Choice{ShardedState::kParameters, "[optimizer, gradients, parameters]"}}) {
    const bool by_layer = state >= ShardedState::kGradients;
    if (pins.offloaded >= state || (by_layer && (whole || (given && *given < state)))) continue;
    PlanRequest with = request;
    with.pins.offloaded = state;
    if (by_layer && !given) with.pins.sharded = state;
    if (SomePlanFits(with)) return fmt::format("train.offload: {}", setting);
  }
  return "";
}

// Throws where host memory alone is too small for some plan, as then it is what is missing.
void RefuseForHost(const PlanRequest& request, const std::vector<RejectedPlan>& rejected) {
  int64_t least = 0;
  for (const RejectedPlan& each : rejected) {
    if (each.host_bytes > 0 && (least == 0 || each.host_bytes < least)) least = each.host_bytes;
  }
  if (least == 0) return;
  const int ranks = RanksThatFit(request);
  // A node has what all islands on it need.
  const int64_t islands = IslandsOfNode(request.cluster, request.ranks, request.islands.count);
  throw UserError(
      ExitCode::kNoPlan,
      fmt::format("cluster: no plan fits {}{}: what train.offload keeps in "
                  "host memory needs {} of the {} of a node; what would make it fit: "
                  "cluster.host_gb of {}{}, train.moments: bf16, or model.freeze",
                  request.ranks, request.ranks == 1 ? " rank" : " ranks", GiB(islands * least),
                  GiB(islands * request.cluster.host.bytes), GiBThatHold(islands * least),
                  ranks > 0 ? fmt::format(", {} ranks", ranks) : ""));
}

}  // namespace

ScoredPlan BestPlan(const PlanRequest& request, const PlanSearchResult& result) {
  if (!result.plans.empty()) return result.plans.front();
  RefuseForHost(request, result.rejected);
  const RejectedPlan nearest = NearestMiss(request, result.rejected);
  const Plan& plan = nearest.plan;
  const LayerLoad& worst = request.workload.worst;
  const int64_t tiles = ImageSpecOf(request.model).TilesOf(worst.patches);
  const int64_t needed = request.cluster.memory_bytes + nearest.missing_bytes;
  const int ranks = RanksThatFit(request);
  std::string more = ranks > 0 ? fmt::format(", or {} ranks of as much memory", ranks) : "";
  if (ranks > 0 && request.pins.data) more += " and parallel.data not given";
  if (const std::string offload = FitsOffloaded(request); !offload.empty()) more += ", " + offload;
  throw UserError(
      ExitCode::kNoPlan,
      fmt::format("cluster: no plan fits {}{}; the nearest (data {}, pipeline {}, tensor {}): {}, "
                  "with a micro-batch of {} tiles and {} tokens; what would make it fit: "
                  "cluster.memory_gb of {}{}{}, or model.freeze",
                  request.ranks, request.ranks == 1 ? " rank" : " ranks", plan.data(),
                  plan.pipeline(), plan.tensor(), nearest.reason, tiles, worst.tokens,
                  GiBThatHold(needed), more,
                  StateFits(request, plan) ? ", smaller balance.tiles and balance.tokens" : ""));
}

}  // namespace equipoise
