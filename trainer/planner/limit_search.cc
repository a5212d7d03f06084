#include "trainer/planner/limit_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "trainer/planner/make_plan.h"
#include "trainer/planner/plan_pins.h"

// Two loops around the search for a plan, over the limits on a pack. The first lowers the limits
// until a plan fits: LowerLimits() is ordered and memory grows with the limits, so that
// O(log(limits)) searches find the largest that fit. The second compares other sizes of packs at
// (nearly) equal samples per step; it passes the best throughput so far to the search as a bound on
// the step time, so that most searches end early.

namespace equipoise {
namespace {

constexpr std::array<double, 3> kSizes = {0.5, 0.25, 2};  // factors on the size of packs, in order
constexpr double kClearGain = 0.03;    // least gain in tokens/s for another size, as a share
constexpr double kSameSamples = 0.05;  // most difference in the samples of a step, as a share

bool FewestAxesFirst(const RunConfig& config, MeshChoice meshes) {
  return meshes == MeshChoice::kFewestAxesFirst && config.cluster.preset == kLocalPreset;
}

class LimitSearch {
 public:
  LimitSearch(const SampleCosts& costs, const RunConfig& config, PlanRequest request,
              MeshChoice meshes)
      : costs_(costs), config_(config), request_(std::move(request)), meshes_(meshes) {}

  FittedRun Fastest(const PlannedRun& first) const {
    FittedRun best = Lowered(first);
    if (!best.fits() || !MaySearch()) return best;
    const double own_rate = TokensPerSecond(best);
    bool changed = false;
    for (const double size : kSizes) {
      const std::optional<PlannedRun> scaled = Scaled(first, size);
      if (!scaled) continue;
      FittedRun run = SearchFaster(*scaled, (1 + kClearGain) * TokensPerSecond(best));
      if (!run.fits()) continue;
      best = std::move(run);
      changed = true;
    }
    if (!changed) return best;
    best.planned.requested->gain = TokensPerSecond(best) / own_rate - 1;
    return Search(best.planned);  // for the other plans and reasons, which SearchFaster() omits
  }

  FittedRun Search(const PlannedRun& planned) const { return Search(planned, RequestFor(planned)); }

  // The search for the packs of `best`, a run of other ranks, if some plan has clearly more
  // throughput.
  std::optional<FittedRun> Faster(const FittedRun& best) const {
    if (!SearchFaster(best.planned, (1 + kClearGain) * TokensPerSecond(best)).fits())
      return std::nullopt;
    return Search(best.planned);
  }

 private:
  // The plans with the largest limits that fit.
  FittedRun Lowered(const PlannedRun& first) const {
    FittedRun run = Search(first);
    if (run.fits()) return run;
    const std::vector<GroupLimits> lower = LowerLimits(costs_, config_, first);
    if (lower.empty()) return run;
    const auto with = [&](const GroupLimits& limits) {
      return Changed(first, limits, config_.train.global_batch);
    };
    FittedRun least = Search(with(lower.back()));
    if (!least.fits()) return least;
    const auto fitting =
        std::partition_point(lower.begin(), lower.end() - 1,
                             [&](const GroupLimits& limits) { return !Fits(with(limits)); });
    if (fitting == lower.end() - 1) return least;
    // Fits() tries more than Search().
    FittedRun largest = Search(with(*fitting));
    return largest.fits() ? largest : least;
  }

  bool MaySearch() const {
    const BalanceSection& balance = config_.balance;
    return balance.limits == "search" && balance.tiles == 0 && balance.tokens == 0 &&
           balance.min_tiles == 0 && balance.min_tokens == 0;
  }

  PlannedRun Changed(const PlannedRun& first, const GroupLimits& limits, int64_t batch) const {
    RunConfig config = config_;
    config.balance.tiles = first.images.TilesOf(limits.patches);
    config.balance.tokens = limits.tokens;
    config.train.global_batch = batch;
    PlannedRun changed = PlanWorkload(costs_, config, request_.model);
    changed.requested =
        RequestedPacking{first.limits, config_.train.global_batch, first.samples_per_pack, 0};
    return changed;
  }

  // The workload with packs of another size, and as many as keep the samples of a step; empty if
  // that is not possible.
  std::optional<PlannedRun> Scaled(const PlannedRun& first, double size) const {
    const auto own_batch = static_cast<double>(config_.train.global_batch);
    const double batch = own_batch / size;
    const std::optional<GroupLimits> limits = ScaledLimits(costs_, config_, first, size);
    if (!limits || batch != std::floor(batch)) return std::nullopt;
    PlannedRun scaled = Changed(first, *limits, std::llround(batch));
    const double share = scaled.samples_per_pack * batch / (first.samples_per_pack * own_batch);
    if (std::abs(share - 1) > kSameSamples || scaled.epoch_packs < std::llround(batch)) {
      return std::nullopt;
    }
    return scaled;
  }

  // Throughput of the best plan in the first step.
  static double TokensPerSecond(const FittedRun& run) {
    return Tokens(run.planned) / run.search.plans.front().step_s;
  }

  static double Tokens(const PlannedRun& planned) {
    double tokens = 0;
    for (const LayerLoad& pack : planned.workload.steps.front()) {
      tokens += static_cast<double>(pack.tokens);
    }
    return tokens;
  }

  // Searches only plans with a higher throughput.
  FittedRun SearchFaster(const PlannedRun& planned, double tokens_per_second) const {
    PlanRequest request = RequestFor(planned);
    request.keep = 1;
    request.within_s = Tokens(planned) / tokens_per_second;
    try {
      return Search(planned, request);
    } catch (const ConfigError&) {
      return {planned, request, {}};  // the packs cannot be divided among the pinned ranks
    }
  }

  PlanRequest RequestFor(const PlannedRun& planned) const {
    PlanRequest request = request_;
    request.workload = planned.workload;
    return request;
  }

  // Requests that are searched in order until a plan fits.
  std::vector<PlanRequest> Searches(const PlanRequest& request) const {
    if (!FewestAxesFirst(config_, meshes_)) return {request};
    RunConfig config = config_;
    config.train.global_batch = request.workload.global_batch();
    const Plan simple = MakePlan(config, request.model, request.ranks);
    // The search has no such schedule on one pipeline rank: it is to choose among all meshes.
    const ScheduleKind* kind = FindSchedule(simple.schedule);
    const bool chunked = kind != nullptr && kind->chunked();
    if (chunked && simple.components.back().mesh.size(Axis::kPipeline) == 1) return {request};
    Accumulation(config, simple);
    PlanRequest pinned = request;
    pinned.pins.data = simple.data();
    pinned.pins.pipeline = simple.pipeline();
    pinned.pins.tensor = simple.tensor();
    pinned.pins.sharded = simple.sharded;
    if (simple.zero_ranks > 0) pinned.pins.zero_ranks = simple.zero_ranks;
    const PlanPins& pins = request.pins;
    const bool free = !pins.data && !pins.pipeline && !pins.tensor;
    return free ? std::vector{pinned, request} : std::vector{pinned};
  }

  FittedRun Search(const PlannedRun& planned, const PlanRequest& request) const {
    FittedRun run{planned, request, {}};
    for (const PlanRequest& each : Searches(run.request)) {
      run.search = SearchPlans(each);
      if (run.fits()) break;
    }
    return run;
  }

  // Whether Search() finds a plan.
  bool Fits(const PlannedRun& planned) const {
    const std::vector<PlanRequest> searches = Searches(RequestFor(planned));
    return std::any_of(searches.begin(), searches.end(), SomePlanFits);
  }

  const SampleCosts& costs_;
  const RunConfig& config_;
  const PlanRequest request_;
  const MeshChoice meshes_;
};

// Calls `search` for each number of context ranks from 2 to `most` that a run may have, until it
// has found something.
std::optional<FittedRun> WithContext(
    const SampleCosts& costs, RunConfig config, PlanRequest request, MeshChoice meshes, int most,
    const std::function<std::optional<FittedRun>(const LimitSearch&)>& search) {
  if (config.parallel.encoder == "auto") config.parallel.encoder = "inline";
  for (int context = 2; context <= most; ++context) {
    if (request.ranks % context != 0) continue;
    config.parallel.context = request.style.context = context;
    try {
      request.pins = PlanPinsOf(config, request.model);
    } catch (const ConfigError&) {
      return std::nullopt;  // the model cannot be shared out so, nor over more ranks
    }
    try {
      if (auto run = search(LimitSearch(costs, config, request, meshes))) return run;
    } catch (const ConfigError&) {  // NOLINT(bugprone-empty-catch): no mesh has so many
    }
  }
  return std::nullopt;
}

}  // namespace

FittedRun FitRun(const SampleCosts& costs, const RunConfig& config, const PlannedRun& first,
                 const PlanRequest& request, MeshChoice meshes) {
  FittedRun best = LimitSearch(costs, config, request, meshes).Fastest(first);
  if (config.parallel.context) return best;
  const auto with_context = [&](int most, const auto& search) {
    return WithContext(costs, config, request, meshes, most, search);
  };
  if (!best.fits()) {
    const auto fits = [&](const LimitSearch& search) -> std::optional<FittedRun> {
      FittedRun run = search.Fastest(first);
      return run.fits() ? std::optional(std::move(run)) : std::nullopt;
    };
    if (auto run = with_context(request.ranks, fits)) return std::move(*run);
    return best;
  }
  // Ranks that have no pack of their own may have a part of one. Exchanges in every layer are for
  // the links of a node, and each number more is a search more.
  if (best.planned.workload.global_batch() >= request.ranks || FewestAxesFirst(config, meshes))
    return best;
  (void)with_context(std::min(request.ranks, request.cluster.devices_per_node),
                     [&](const LimitSearch& search) -> std::optional<FittedRun> {
                       if (auto run = search.Faster(best)) best = std::move(*run);
                       return std::nullopt;
                     });
  return best;
}

FittedRun SearchRun(const SampleCosts& costs, const RunConfig& config, const PlannedRun& planned,
                    const PlanRequest& request, MeshChoice meshes) {
  return LimitSearch(costs, config, request, meshes).Search(planned);
}

}  // namespace equipoise
