#include "trainer/loop/trial_run.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <vector>

#include "balance/costs/cluster.h"
#include "configs/base/error.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/loop/step_timer.h"
#include "trainer/planner/plan_run.h"
#include "trainer/planner/plan_trial.h"

namespace equipoise {
namespace {

constexpr int kMostRounds = 3;                    // of no more than kMostTrials runs in all
constexpr int kWarmUpSteps = 1, kTimedSteps = 2;  // of each round

int RanksOfTrial(const RunConfig& config, int ranks, const MpiEnvironment& mpi) {
  const bool local = config.cluster.preset == kLocalPreset && !config.cluster.gpus_per_node;
  if (ranks == 0) ranks = local ? mpi.size() : MakeCluster(config.cluster).num_devices();
  if (ranks == mpi.size()) return ranks;
  throw ConfigError(
      fmt::format("--trial: the plan is for {} ranks, and {} were started; use mpirun -n {}, or "
                  "give --ranks {}",
                  ranks, mpi.size(), ranks, mpi.size()));
}

}  // namespace

PlanReport PlanByTrial(const RunConfig& config, int ranks, int trials, MpiEnvironment& mpi) {
  const int started = RanksOfTrial(config, ranks, mpi);
  StepTimer timer(config, mpi);
  const auto run = [&](const ScoredPlan& plan) {
    std::vector<double> seconds = timer.Time(plan, kWarmUpSteps, kTimedSteps);
    spdlog::info("tried {}: {:.4g} s a step", DescribeMesh(plan.plan),
                 *std::min_element(seconds.begin(), seconds.end()));
    return seconds;
  };
  return PlanRun(config, {started, timer.precision(), trials, true}, [&](PlanReport& report) {
    timer.UsePacks({report.tiles, report.tokens}, report.global_batch());
    std::vector<ScoredPlan> best = report.search.plans;
    best.resize(std::min(best.size(), static_cast<size_t>(trials)));
    const int rounds = std::clamp(kMostTrials / std::max(1, trials), 1, kMostRounds);
    RankByTrials(TryPlans(best, rounds, run), report);
  });
}

}  // namespace equipoise
