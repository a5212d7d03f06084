#pragma once

#include <cstdint>
#include <string>

#include "balance/groups/epoch_windows.h"
#include "balance/groups/group_plan.h"
#include "models/spec/image_spec.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Limits on a micro-batch, in patches and tokens, from the tiles and tokens of `balance`.
GroupLimits LimitsOf(int64_t tiles, int64_t tokens, const ImageSpec& images);

// The options for forming micro-batches, from `balance` and `train`. Limits that are not given are
// 0; ChooseLimits() chooses them from the samples.
GroupOptions GroupOptionsOf(const RunConfig& config, const LoadCost& cost, const ImageSpec& images);

// What a run that goes on has behind it: steps, and the packs that they were of; -1: as many as
// such steps have now.
struct StepsTaken {
  int64_t steps = 0, packs = 0;
};

// Packs of so many epochs, the last one rounded up.
int64_t PacksOf(double epochs, int64_t epoch_packs);

// Steps of those, of `step_packs` each.
int64_t StepsOf(double epochs, int64_t epoch_packs, int64_t step_packs);

// The steps of a run, with those taken: those of train.epochs, rounded up, of so many packs each;
// where there is none, train.steps.
int64_t StepsOf(const TrainSection& train, int64_t epoch_packs, const StepsTaken& taken = {});

// The baseline for balance metrics, as in trainers without balancing: the same samples in random
// padded groups, with the mean number of samples of the actual groups each.
GroupOptions RandomBaseline(const GroupOptions& options, double samples_per_group);

// The limits and the origin of each: "9 tiles (chosen) and 4096 tokens (data.max_tokens)". `given`:
// the configuration's section.
std::string DescribeLimits(const GroupOptions& options, const BalanceSection& given,
                           int64_t max_tokens);

// One sentence about an epoch's micro-batches that explains the term: their number, their samples,
// how full they are or their padding, and `limits`, from DescribeLimits().
std::string DescribeMicroBatches(const EpochSummary& epoch, const GroupOptions& options,
                                 const std::string& limits);

// One sentence about how long data ranks wait for each other, compared with `random`, the summary
// for RandomBaseline().
std::string DescribeBalance(const EpochSummary& epoch, const EpochSummary& random,
                            const GroupOptions& options, int64_t data_ranks);

}  // namespace equipoise
