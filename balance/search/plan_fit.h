#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "balance/costs/cost_model.h"
#include "balance/costs/layer_cost_table.h"
#include "balance/costs/memory_model.h"
#include "balance/load/partition.h"
#include "balance/search/plan_request.h"
#include "balance/search/stage_candidates.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// A pipeline rank that needs more memory than a device has, whatever is computed again.
struct OutOfMemoryRank {
  int pipeline_rank = 0;
  MemoryForecast memory;
};

// Chooses stages and recomputation for plans of one tensor degree, of the encoder too, with or
// without sequence parallelism, and predicts their steps. Several threads may share one for plans
// of data degrees that LowerBound() was called for: it keeps the packs of each.
class PlanFitter {
 public:
  // For plans that split layers as this one does. `request` must outlive it.
  PlanFitter(const PlanRequest& request, const Plan& plan);

  const CostModel& costs() const { return costs_; }
  // The micro-batches of the data rank with the most work in the first step.
  std::vector<LayerLoad> HeaviestLoads(int data) const;

  // Seconds that the step takes at least, whatever the stages: the rank with the mean work cannot
  // start before the stages in front of it, nor end before their backward. Recomputation and
  // communication are not counted.
  double LowerBound(const Plan& shape) const;
  // Bytes of weights, gradients and optimizer state that some pipeline rank has at least.
  int64_t StateBytesBound(const Plan& shape) const;

  // Ways to cut the plan's stages by the request's rule, best first.
  std::vector<std::vector<int>> Cuts(const Plan& shape, size_t keep) const;
  // Those of Cuts() that a search simulates.
  std::vector<std::vector<int>> CutsToTry(const Plan& shape) const;
  // Cuts() with each layer's time under `plan.recompute`.
  std::vector<std::vector<int>> CutsWithRecompute(const Plan& plan, size_t keep) const;

  // Sets plan.recompute by the request's rule and returns the forecasts by pipeline rank; or what
  // does not fit. REQUIRES: stage_begins is set.
  struct Fit {
    std::vector<MemoryForecast> memory;
    std::optional<OutOfMemoryRank> misfit;  // of the rank that misses most
    std::optional<int64_t> host_bytes;      // that offloaded state needs of a node without so many
  };
  Fit FitMemory(Plan& plan) const;
  // The recomputation of each layer that is asked for; FitMemory() adds what memory asks for.
  std::vector<Recompute> GivenRecompute() const;
  // Whether FitMemory() finds that all fits, in less time.
  bool FitsMemory(Plan plan) const;

  // Seconds of the first step on the data rank with the most work, simulated.
  double StepSeconds(const Plan& plan) const;
  // A lower bound of StepSeconds: of each pipeline rank what it computes, and what the first
  // micro-batch takes before it and the last after it.
  double StepSecondsBound(const Plan& plan) const;

 private:
  // Costs of the first step's packs. Made when a time is first asked for: to fit the memory, it is
  // not needed.
  struct StepPacks {
    StepPacks(const CostModel& costs, const std::vector<LayerLoad>& packs);
    LayerCostTable table;
    std::vector<double> seconds;               // [pack] all layers, forward and backward
    std::map<int, std::vector<int>> heaviest;  // by data degree, filled as asked for
  };
  StepPacks& Packs() const;
  const std::vector<int>& HeaviestPacks(int data) const;
  std::vector<double> LayerSeconds(const std::vector<Recompute>& recompute) const;
  std::vector<std::vector<int>> CutBy(const std::vector<double>& layer_s, const Plan& shape,
                                      size_t keep, bool remember = false) const;
  // Ways to cut one component; `remember`: the same for each span and number of cuts.
  std::vector<std::vector<int>> CutsOfSpan(const std::vector<double>& layer_s, const CutSpan& span,
                                           size_t keep, bool remember) const;
  // Sets plan.recompute to the pinned, or to the rule's where that is one kind. A schedule of
  // micro-batches of the worst load that brings every rank to its peak.
  Schedule WorstSchedule(Plan& plan) const;
  // Forecasts one rank; under the adaptive rule, sets its layers' recomputation.
  // `offload`: which activations may lie in host memory too.
  MemoryForecast FitRank(Plan& plan, const Schedule& schedule, int rank, bool offload) const;
  MemoryForecast ChooseRecompute(Plan& plan, const Schedule& schedule, int rank,
                                 bool offload) const;
  // Seconds that a rank's recomputation adds to a micro-batch.
  double RecomputeSeconds(const Plan& plan, int rank) const;
  Fit FitRanks(Plan& plan, const Schedule& schedule, bool offload) const;
  MemoryForecast Forecast(const Plan& plan, const Schedule& schedule, int rank) const;
  int64_t FeatureBytes(const Plan& plan) const;
  // ComputeSchedule() of the request.
  Schedule Ops(const Plan& plan, const std::vector<LayerLoad>& micro_batches,
               const SimulationCosts& costs) const;

  const PlanRequest& request_;
  CostModel costs_;
  std::shared_ptr<const std::vector<LayerSpec>> specs_;
  LayerCostTable typical_;            // of packs over which costs are averaged
  LayerCostTable worst_;              // of the worst load alone
  std::vector<double> output_bytes_;  // [layer] mean
  mutable std::optional<StepPacks> packs_;
  // By the layers and stages of a component, and how many cuts are kept: shapes share them.
  mutable std::map<std::tuple<int, int, int, size_t>, std::vector<std::vector<int>>> cuts_;
  mutable std::mutex cuts_lock_;
};

// A schedule's compute ops, without what has nothing to do for these micro-batches, with reductions
// and the optimizer's step. `costs`: StageCosts() of the micro-batches, by which an encoder's
// passes are laid into bubbles.
Schedule ComputeSchedule(const PlanRequest& request, const Plan& plan,
                         const std::vector<LayerLoad>& micro_batches, const SimulationCosts& costs);

}  // namespace equipoise
