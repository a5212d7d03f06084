#pragma once

#include <cstdint>
#include <string>

#include "balance/group_plan.h"
#include "trainer/run_config.h"

namespace equipoise {

// How `balance` and `train` ask for micro-batches to be formed. Limits that are not given are 0:
// ChooseLimits() chooses them from the samples.
GroupOptions GroupOptionsOf(const RunConfig& config, const LoadCost& cost);

// What balance is measured against: the same samples in random groups, as other frameworks form
// them, of as many samples each as ours hold on average.
GroupOptions RandomBaseline(const GroupOptions& options, double samples_per_group);

// "pad 0.344, dist vision 0.331, text 0.276, time 0.300"
std::string DescribeBalance(const BalanceMetrics& metrics);

}  // namespace equipoise
