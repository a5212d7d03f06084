#include "trainer/limit_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer/make_plan.h"

namespace equipoise {
namespace {

class LimitSearch {
 public:
  LimitSearch(const SampleCosts& costs, const RunConfig& config, PlanRequest request,
              MeshChoice meshes)
      : costs_(costs), config_(config), request_(std::move(request)), meshes_(meshes) {}

  FittedRun Lowered(const PlannedRun& first) const {
    FittedRun run = Search(first);
    const std::vector<GroupLimits> lower = LowerLimits(costs_, config_, first);
    if (run.fits() || lower.empty()) return run;
    const auto with = [&](const GroupLimits& limits) {
      PlannedRun lowered = PlanWorkload(costs_, config_, request_.model, limits);
      lowered.lowered_from = LoweredFrom{first.limits, first.samples_per_pack};
      return lowered;
    };
    FittedRun least = Search(with(lower.back()));
    if (!least.fits()) return least;
    const auto fitting =
        std::partition_point(lower.begin(), lower.end() - 1,
                             [&](const GroupLimits& limits) { return !Fits(with(limits)); });
    return fitting == lower.end() - 1 ? least : Search(with(*fitting));
  }

 private:
  PlanRequest RequestFor(const PlannedRun& planned) const {
    PlanRequest request = request_;
    request.workload = planned.workload;
    return request;
  }

  // To be searched one after another until a plan fits.
  std::vector<PlanRequest> Searches(const PlanRequest& request) const {
    if (meshes_ == MeshChoice::kAll || config_.cluster.preset != kLocalPreset) return {request};
    const Plan simple = MakePlan(config_, request.model, request.ranks);
    Accumulation(config_, simple);
    PlanRequest pinned = request;
    pinned.pins.data = simple.data;
    pinned.pins.pipeline = simple.pipeline;
    pinned.pins.tensor = simple.tensor;
    pinned.pins.zero = simple.zero;
    const PlanPins& pins = request.pins;
    const bool free = !pins.data && !pins.pipeline && !pins.tensor;
    return free ? std::vector{pinned, request} : std::vector{pinned};
  }

  FittedRun Search(const PlannedRun& planned) const {
    FittedRun run{planned, RequestFor(planned), {}};
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

}  // namespace

FittedRun FitRun(const SampleCosts& costs, const RunConfig& config, const PlannedRun& first,
                 const PlanRequest& request, MeshChoice meshes) {
  return LimitSearch(costs, config, request, meshes).Lowered(first);
}

}  // namespace equipoise
