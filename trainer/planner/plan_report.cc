#include "trainer/planner/plan_report.h"

#include <fmt/format.h>

#include <cmath>

#include "parallel/schedule/builders.h"

namespace equipoise {

double PlanReport::GpuDays(double of_steps) const {
  return of_steps * mean_step_s() * ranks() / 86400;
}

double PlanReport::CostOf(double days) const {
  return days * 24 * request.cluster.price_per_device_hour;
}

double PlanTrial::Percentile(double share) const {
  const auto last = static_cast<double>(step_s.size() - 1);
  return step_s[static_cast<size_t>(std::lround(share * last))];
}

std::string DescribeMesh(const Plan& plan) {
  std::string text = DescribeAxes(plan);
  // Delayed updates train otherwise without a pipeline too.
  if (plan.pipeline() > 1 || DelaysUpdates(plan.schedule)) text += ", " + plan.schedule;
  if (plan.chunks() > 1) text += fmt::format(" x {}", plan.chunks());
  if (plan.sequence) text += ", sequence parallel";
  text = fmt::format("{}, ZeRO {}", text, ZeroStage(plan.sharded));
  return plan.zero_ranks > 0 ? fmt::format("{} on {} ranks each", text, plan.zero_ranks) : text;
}

}  // namespace equipoise
