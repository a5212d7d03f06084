#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "balance/load/sample_groups.h"
#include "balance/search/outer_forecast.h"
#include "balance/search/plan_forecast.h"
#include "balance/search/plan_goal.h"
#include "balance/search/plan_request.h"
#include "balance/search/plan_search.h"
#include "configs/base/json.h"

namespace equipoise {

// The balance of an epoch's micro-batches over the data ranks: balance/load/balance_metrics.h.
struct PlanBalance {
  std::string method;  // of balance.group
  double pad_ratio = 0, dist_ratio_vision = 0, dist_ratio_text = 0, dist_ratio_time = 0;
  int64_t micro_batches = 0;  // of the epoch
};

// Numbers of samples by tiles or tokens: bin i counts i * bin_width to (i + 1) * bin_width - 1.
struct SampleHistogram {
  std::string title;
  int64_t bin_width = 1;
  std::vector<int64_t> counts;
};

// A plan that was run for some steps.
struct PlanTrial {
  ScoredPlan plan;
  std::vector<double> step_s;  // measured seconds of the steps, ascending
  std::string failure;         // why it could not be run; empty if it could
  // The quantile of the measured times, such as 0.5 for the median. REQUIRES: no failure.
  double Percentile(double share) const;
};

// The packs that the configuration requests, when the planner chose others.
struct RequestedPacking {
  GroupLimits limits;
  int64_t global_batch = 0;  // packs of a step
  double samples_per_pack = 0;
  double gain = 0;  // gain in tokens/s of the chosen packs, as a share; 0: limits lowered to fit
};

// A number of GPUs that could be used, with the plan that the goal prefers for it.
struct SizedPlan {
  Plan plan;
  RunFigures figures;
  bool front = true;  // on the Pareto front over the numbers of GPUs
  bool keeps = true;  // the limits of the goal
};

// A number of GPUs without a plan.
struct SizeLeftOut {
  int gpus = 0;
  std::string reason;      // "31.2 hours or more"
  double least_hours = 0;  // lower bound of the run; 0: left out for another reason
};

// How a plan was chosen by the section `goal` (trainer/planner/goal_search.h).
struct GoalReport {
  PlanGoal goal;
  std::vector<SizedPlan> sizes;  // ascending; one where the number of GPUs was given
  std::vector<SizeLeftOut> left_out;
  size_t chosen = 0;  // of `sizes`
  std::string miss;   // what limit the plan misses; empty: none
};

// The content of `equipoise plan` for a search that found a plan. Figures are those of all islands,
// but plan, memory, search and request are those of one.
struct PlanReport {
  std::string config;                         // path of the configuration
  std::string settings;                       // all of it, as YAML
  std::string sample_source;                  // "histogram internvl12m, 1267819 samples"
  std::string chat_template;                  // by which they were read; empty: they were not
  int64_t oversize = 0;                       // samples beyond the limits, which are left out
  int64_t tiles = 0, tokens = 0;              // limits of a micro-batch, as in `balance`
  std::optional<RequestedPacking> requested;  // absent: the limits are the configuration's
  std::string packing_change;                 // DescribeChange(); empty likewise
  double samples_per_pack = 0;
  int64_t steps = 0;                        // steps of the run
  double epoch_steps = 0;                   // steps in which every sample is used once
  PlanBalance before, after;                // random micro-batches, and those of the configuration
  std::vector<SampleHistogram> histograms;  // samples by tiles, and by tokens
  PlanRequest request;
  PlanSearchResult search;        // plans that were tried are ordered by measured time
  std::vector<PlanTrial> trials;  // by measured median, failed ones last; empty without --trial
  PlanForecast forecast;          // forecast of the best plan
  GoalReport goal;                // without sizes where the section `goal` is empty
  IslandsForecast islands;

  int ranks() const { return islands.count * best().plan.num_ranks(); }
  int64_t global_batch() const { return islands.count * request.workload.global_batch(); }
  // Seconds of a step in the mean, of which an outer step is a part.
  double mean_step_s() const { return forecast.step_s.p50 + islands.outer_s_per_step(); }
  const ScoredPlan& best() const { return search.plans.front(); }
  double gpu_days() const { return GpuDays(static_cast<double>(steps)); }
  double epoch_gpu_days() const { return GpuDays(epoch_steps); }
  // In the currency of cluster.price_per_gpu_hour, or in USD at the preset's list price; 0 without
  // either.
  double cost() const { return CostOf(gpu_days()); }
  double epoch_cost() const { return CostOf(epoch_gpu_days()); }
  double samples_per_s() const { return forecast.packs_per_s * samples_per_pack; }
  double hours_per_million_samples() const { return 1e6 / samples_per_s() / 3600; }
  // As cost().
  double cost_per_million_samples() const {
    return CostOf(hours_per_million_samples() * ranks() / 24);
  }

 private:
  double GpuDays(double of_steps) const;
  double CostOf(double days) const;
};

// A mesh and its schedule in one line, such as
// "data 4 x pipeline 8 x tensor 2, interleaved x 4, ZeRO 1".
std::string DescribeMesh(const Plan& plan);

// Prints a plan as text; `explain` adds why the other plans were not taken.
void PrintPlan(const PlanReport& report, bool explain, std::ostream& out);

// The plan as sections of a configuration, by which it is pinned.
std::string PlanSections(const PlanReport& report);

// A plan as JSON, with the keys of docs/planner.md.
Json PlanToJson(const PlanReport& report);

}  // namespace equipoise
