#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "balance/load/sample_groups.h"
#include "balance/search/plan_forecast.h"
#include "balance/search/plan_request.h"
#include "balance/search/plan_search.h"
#include "configs/base/json.h"

namespace equipoise {

// How even the micro-batches of an epoch are over the data ranks: balance/load/balance_metrics.h.
struct PlanBalance {
  std::string method;  // of balance.group
  double pad_ratio = 0, dist_ratio_vision = 0, dist_ratio_text = 0, dist_ratio_time = 0;
  int64_t micro_batches = 0;  // of the epoch
};

// How many samples have so many tiles or tokens: bin i counts i * bin_width and up.
struct SampleHistogram {
  std::string title;
  int64_t bin_width = 1;
  std::vector<int64_t> counts;
};

// A plan that was run for some real steps.
struct PlanTrial {
  ScoredPlan plan;
  std::vector<double> step_s;  // measured, ascending
  std::string failure;         // why it could not be run; empty: it could
  // The step below which so large a share of the steps is. REQUIRES: no failure.
  double Percentile(double share) const;
};

// Packs that the configuration asks for, where others were chosen.
struct RequestedPacking {
  GroupLimits limits;
  int64_t global_batch = 0;  // a step
  double samples_per_pack = 0;
  double gain = 0;  // tokens/s that the others compute more, as a share; 0: lowered to fit
};

// All that `equipoise plan` shows of a search that found a plan.
struct PlanReport {
  std::string config;                           // the file
  std::string sample_source;                    // "histogram internvl12m, 1267819 samples"
  int64_t oversize = 0;                         // samples above the limits, which are left out
  int64_t tiles = 0, tokens = 0;                // limits of a micro-batch, as in `balance`
  std::optional<RequestedPacking> in_place_of;  // absent: they are the configuration's
  std::string why;                              // in words; empty likewise
  double samples_per_pack = 0;
  int64_t steps = 0;                        // of the run
  double epoch_steps = 0;                   // of all samples once
  PlanBalance before, after;                // random micro-batches, and those of the configuration
  std::vector<SampleHistogram> histograms;  // of the samples' tiles and tokens
  PlanRequest request;
  PlanSearchResult search;        // where plans were tried, their order is by what was measured
  std::vector<PlanTrial> trials;  // by measured median, failed ones last; empty: none was asked for
  PlanForecast forecast;          // of the best plan

  const ScoredPlan& best() const { return search.plans.front(); }
  double gpu_days() const { return GpuDays(static_cast<double>(steps)); }
  double epoch_gpu_days() const { return GpuDays(epoch_steps); }
  // In the currency of cluster.price_per_gpu_hour, or in USD at the preset's list price; 0 without
  // either.
  double cost() const { return CostOf(gpu_days()); }
  double epoch_cost() const { return CostOf(epoch_gpu_days()); }

 private:
  double GpuDays(double of_steps) const;
  double CostOf(double days) const;
};

// One line for a mesh with its schedule: "data 4 x pipeline 8 x tensor 2, interleaved x 4, ZeRO 1".
std::string DescribeMesh(const Plan& plan);

// For people; `explain` adds why the other plans were not taken.
void PrintPlan(const PlanReport& report, bool explain, std::ostream& out);

// For programs; the keys are those of docs/planner.md.
Json PlanToJson(const PlanReport& report);

}  // namespace equipoise
