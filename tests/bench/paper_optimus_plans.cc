#include "tests/bench/paper_optimus_plans.h"

#include <algorithm>
#include <thread>

#include "balance/search/plan_search.h"
#include "configs/base/error.h"
#include "trainer/planner/plan_report.h"

namespace equipoise::testing {
namespace {

// With the image tokens of a sample as one picture, as the paper's simulated costs have them.
PlanRequest RequestOf(const PaperJob& job) {
  PlanRequest request;
  request.model = ModelOf(job, job.encoders.front());
  request.cluster = ClusterOf(job);
  request.ranks = job.gpus();
  request.style = PaperStyle();
  request.workload.worst = LoadOf(job);
  const auto packs = static_cast<size_t>(job.batch / PaperJob::kMicroBatch);
  request.workload.steps = {std::vector<LayerLoad>(packs, request.workload.worst)};
  request.pins.sequence = true;
  request.pins.encoder.placement.reset();
  request.keep = 1;
  request.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return request;
}

PaperPlan BestOf(const PlanRequest& request) {
  PaperPlan plan;
  try {
    const ScoredPlan best = BestPlan(request, SearchPlans(request));
    plan.mesh = DescribeMesh(best.plan);
    plan.step_s = best.step_s;
    plan.gib = static_cast<double>(best.peak_bytes()) / (1 << 30);
    plan.layers = static_cast<int>(best.plan.recompute.size());
    plan.recomputed =
        static_cast<int>(std::count_if(best.plan.recompute.begin(), best.plan.recompute.end(),
                                       [](Recompute kind) { return kind != Recompute::kNone; }));
  } catch (const UserError& error) {
    plan.mesh = error.what();
  }
  return plan;
}

PlanRequest PinnedOf(const PaperJob& job) {
  PlanRequest request = RequestOf(job);
  request.pins.data = job.data;
  request.pins.pipeline = job.pipeline;
  request.pins.tensor = job.tensor;
  request.pins.chunks = job.chunks;
  request.pins.schedule = "interleaved";
  return request;
}

}  // namespace

PaperPlan OptimusPlan(const PaperJob& job) {
  PlanRequest request = PinnedOf(job);
  request.pins.encoder.placement = EncoderPlacement::kOptimus;
  request.pins.encoder.tensor = job.tensor;
  return BestOf(request);
}

PaperPlan BalancedPlan(const PaperJob& job) {
  PlanRequest request = PinnedOf(job);
  request.pins.encoder.placement = EncoderPlacement::kInline;
  return BestOf(request);
}

PaperPlan JointPlan(const PaperJob& job) {
  PlanRequest request = RequestOf(job);
  const PaperPlan searched = BestOf(request);
  request.pins.chunks = job.chunks;  // more than a search tries
  const PaperPlan chunked = BestOf(request);
  return chunked.step_s > 0 && chunked.step_s < searched.step_s ? chunked : searched;
}

}  // namespace equipoise::testing
