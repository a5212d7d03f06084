#include "trainer/planner/plan_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/common/collective_error.h"

namespace equipoise {

std::vector<PlanTrial> TryPlans(const std::vector<ScoredPlan>& plans, int rounds,
                                const TimeSteps& run) {
  std::vector<PlanTrial> trials;
  trials.reserve(plans.size());
  for (const ScoredPlan& plan : plans) trials.push_back({plan, {}, ""});
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < trials.size(); ++i) {
      PlanTrial& trial = trials[round % 2 == 0 ? i : trials.size() - 1 - i];
      if (!trial.failure.empty()) continue;
      try {
        const std::vector<double> seconds = run(trial.plan);
        trial.step_s.insert(trial.step_s.end(), seconds.begin(), seconds.end());
      } catch (const CollectiveRunError& error) {
        trial.failure = error.what();
      }
    }
  }
  for (PlanTrial& trial : trials) std::sort(trial.step_s.begin(), trial.step_s.end());
  return trials;
}

void RankByTrials(std::vector<PlanTrial> trials, PlanReport& report) {
  std::stable_sort(trials.begin(), trials.end(), [](const PlanTrial& a, const PlanTrial& b) {
    if (a.failure.empty() != b.failure.empty()) return a.failure.empty();
    return a.failure.empty() && a.Percentile(0.5) < b.Percentile(0.5);
  });
  if (trials.empty() || !trials.front().failure.empty()) {
    throw CollectiveRunError(
        fmt::format("--trial: none of the plans could be run; the best of them: {}",
                    trials.empty() ? "there is none" : trials.front().failure));
  }
  std::vector<ScoredPlan>& plans = report.search.plans;
  plans.erase(plans.begin(), plans.begin() + static_cast<std::ptrdiff_t>(trials.size()));
  for (auto trial = trials.rbegin(); trial != trials.rend(); ++trial) {
    plans.insert(plans.begin(), trial->plan);
  }
  report.trials = std::move(trials);
}

}  // namespace equipoise
