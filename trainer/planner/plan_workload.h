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

// Evenness over the data ranks: of random micro-batches with as many samples, and of those of the
// configuration.
struct BalanceBeforeAfter {
  PlanBalance before, after;
};

// The load of a run, worked out from the sizes of its samples.
struct PlannedRun {
  Workload workload;
  GroupLimits limits;  // of a micro-batch
  ImageSpec images;    // of the model
  std::optional<RequestedPacking> in_place_of;
  double samples_per_pack = 0;
  // Counts of an epoch; estimates where a part of the samples stands for all.
  int64_t epoch_packs = 0;
  int64_t oversize = 0;                                       // samples above the limits
  std::function<BalanceBeforeAfter(int data_ranks)> balance;  // of an epoch
};

// The first steps of an epoch, grouped as training groups them; an epoch of less than a step is
// gone through several times. Of very many samples a part stands for all. Limits that are not given
// are chosen from the samples. Throws DataError when no sample is within the limits.
PlannedRun PlanWorkload(const SampleCosts& costs, const RunConfig& config,
                        const ModelConfig& model);

// LowerLimits() of balance/groups/group_plan.h for a run that was planned with those of its
// configuration.
std::vector<GroupLimits> LowerLimits(const SampleCosts& costs, const RunConfig& config,
                                     const PlannedRun& planned);

// ScaledLimits() for packs `size` times as large as those planned.
std::optional<GroupLimits> ScaledLimits(const SampleCosts& costs, const RunConfig& config,
                                        const PlannedRun& planned, double size);

// "limits 3 tiles and 2,048 tokens, lowered from 9 tiles and 4,096 tokens to fit 79.1 GiB: ...", or
// "... in place of ...: 7 % more tokens/s, ..."; "" where they are the configuration's.
std::string DescribeChange(const PlannedRun& planned, int64_t memory_bytes);

}  // namespace equipoise
