#pragma once

#include <cstdint>
#include <string>

#include "balance/groups/epoch_windows.h"
#include "balance/groups/group_plan.h"
#include "models/spec/image_spec.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// Limits on a micro-batch, given in tiles as `balance` does, for an encoder that takes pictures so.
GroupLimits LimitsOf(int64_t tiles, int64_t tokens, const ImageSpec& images);

// How `balance` and `train` ask for micro-batches to be formed. Limits that are not given are 0:
// ChooseLimits() chooses them from the samples.
GroupOptions GroupOptionsOf(const RunConfig& config, const LoadCost& cost, const ImageSpec& images);

// The baseline of balance: the same samples in random groups, padded, as other frameworks
// form them, of as many samples each as ours hold on average.
GroupOptions RandomBaseline(const GroupOptions& options, double samples_per_group);

// "9 tiles (chosen) and 4096 tokens (data.max_tokens)": the limits and where each comes from.
// `given`: what the configuration asks for.
std::string DescribeLimits(const GroupOptions& options, const BalanceSection& given,
                           int64_t max_tokens);

// An epoch's micro-batches for a reader who does not know the term, in one sentence: how many, what
// each holds, how full it is or what is padding, within which limits (as DescribeLimits() says).
std::string DescribeMicroBatches(const EpochSummary& epoch, const GroupOptions& options,
                                 const std::string& limits);

// In one sentence, how long data ranks wait for each other, and what `random`, the RandomBaseline()
// of `options`, comes to.
std::string DescribeBalance(const EpochSummary& epoch, const EpochSummary& random,
                            const GroupOptions& options, int64_t data_ranks);

}  // namespace equipoise
