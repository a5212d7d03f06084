#pragma once

#include <cstdint>
#include <string>

#include "balance/group_plan.h"
#include "trainer/run_config.h"

namespace equipoise {

// How `balance` and `train` ask for micro-batches to be formed. Limits that are not given are 0:
// ChooseLimits() chooses them from the samples.
GroupOptions GroupOptionsOf(const RunConfig& config, const LoadCost& cost);

// The same samples in random groups of train.micro_batch, what balance is measured against.
GroupOptions RandomBaseline(const GroupOptions& options);

// "pad 0.344, dist vision 0.331, text 0.276, time 0.300"
std::string DescribeBalance(const BalanceMetrics& metrics);

}  // namespace equipoise
