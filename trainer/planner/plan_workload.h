#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "balance/groups/group_plan.h"
#include "balance/groups/workload.h"
#include "models/spec/image_spec.h"
#include "models/spec/model_config.h"
#include "trainer/planner/plan_report.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The balance of an epoch over the data ranks: of random micro-batches with the same mean number of
// samples, and of those of the configuration.
struct BalanceBeforeAfter {
  PlanBalance before, after;
};

// The workload of a run, computed from the sizes of its samples.
struct PlannedRun {
  Workload workload;
  GroupLimits limits;  // limits on a micro-batch
  ImageSpec images;    // image encoder of the model
  std::optional<RequestedPacking> requested;
  double samples_per_pack = 0;
  // Counts over an epoch; estimates when only a part of the samples was read.
  int64_t epoch_packs = 0;
  int64_t oversize = 0;                                       // samples beyond the limits
  std::function<BalanceBeforeAfter(int data_ranks)> balance;  // balance of an epoch
};

// The workload of an epoch's first steps, grouped as in training; an epoch of less than a step is
// repeated. Of very many samples, an evenly spaced part is used. Limits that are not given are
// chosen from the samples. Throws DataError when no sample is within the limits.
PlannedRun PlanWorkload(const SampleCosts& costs, const RunConfig& config,
                        const ModelConfig& model);

// LowerLimits() of balance/groups/group_plan.h for a run that was planned with the limits of its
// configuration.
std::vector<GroupLimits> LowerLimits(const SampleCosts& costs, const RunConfig& config,
                                     const PlannedRun& planned);

// ScaledLimits() of balance/groups/group_plan.h for packs `size` times as large as those planned.
std::optional<GroupLimits> ScaledLimits(const SampleCosts& costs, const RunConfig& config,
                                        const PlannedRun& planned, double size);

// Describes limits that the planner changed: "limits 3 tiles and 2,048 tokens, lowered from 9 tiles
// and 4,096 tokens to fit 79.1 GiB: ...", or "... in place of ...: 7 % more tokens/s, ..."; "" when
// they are the configuration's.
std::string DescribeChange(const PlannedRun& planned, const PlanRequest& request);

}  // namespace equipoise
