#include "trainer/settings/group_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "configs/base/error.h"

namespace equipoise {

GroupLimits LimitsOf(int64_t tiles, int64_t tokens, const ImageSpec& images) {
  return {images.LoadOfTiles(tiles).patches, tokens};
}

GroupOptions GroupOptionsOf(const RunConfig& config, const LoadCost& cost,
                            const ImageSpec& images) {
  const BalanceSection& balance = config.balance;
  GroupOptions options;
  options.method = balance.group;
  if (balance.pad && !HasFixedSamples(options.method)) {
    throw ConfigError(fmt::format(
        "balance.pad: {} fills micro-batches without padding; use group: random or length_grouped",
        ToString(balance.group)));
  }
  options.limits =
      LimitsOf(balance.tiles, balance.tokens > 0 ? balance.tokens : config.data.max_tokens, images);
  // The limits of a plan may be lower than those of the configuration.
  const int64_t most = std::max(balance.tokens, config.data.max_tokens);
  if (balance.min_tokens > most) {
    throw ConfigError(fmt::format(
        "balance.min_tokens: {} is more than the {} tokens that a pack may have; lower it",
        balance.min_tokens, most));
  }
  options.min_patches = LimitsOf(balance.min_tiles, 0, images).patches;
  options.min_tokens = balance.min_tokens;
  options.patch_unit = images.rows_per_tile;
  options.rounds = balance.rounds;
  options.micro_batch = config.train.micro_batch;
  options.pad = balance.pad;
  options.global_batch = config.train.global_batch;
  options.islands = config.train.diloco.islands;
  options.cost = cost;
  options.seed = static_cast<uint64_t>(config.train.seed);
  return options;
}

int64_t PacksOf(double epochs, int64_t epoch_packs) {
  // 1.1 * 1600 is a little more than 1760.
  return std::llround(std::ceil(epochs * static_cast<double>(epoch_packs) * (1 - 1e-12)));
}

int64_t StepsOf(double epochs, int64_t epoch_packs, int64_t step_packs) {
  return std::max<int64_t>(1, (PacksOf(epochs, epoch_packs) + step_packs - 1) / step_packs);
}

int64_t StepsOf(const TrainSection& train, int64_t epoch_packs, const StepsTaken& taken) {
  if (train.epochs == 0) return train.steps;
  // In whole packs: the same number from whatever step it is counted.
  const int64_t packs = PacksOf(train.epochs, epoch_packs);
  const int64_t used = taken.packs < 0 ? taken.steps * train.global_batch : taken.packs;
  const int64_t left = std::max<int64_t>(0, packs - used);
  const int64_t steps = (left + train.global_batch - 1) / train.global_batch;
  return std::max<int64_t>(1, taken.steps + steps);
}

GroupOptions RandomBaseline(const GroupOptions& options, double samples_per_group) {
  GroupOptions random = options;
  random.method = GroupMethod::kRandom;
  random.pad = true;
  random.micro_batch = std::max<int64_t>(1, std::llround(samples_per_group));
  return random;
}

std::string DescribeLimits(const GroupOptions& options, const BalanceSection& given,
                           int64_t max_tokens) {
  const char* tokens = "chosen";
  if (options.limits.tokens == max_tokens) tokens = "data.max_tokens";
  if (given.tokens > 0) tokens = "balance.tokens";
  return fmt::format("{} tiles ({}) and {} tokens ({})", options.limit_units(),
                     given.tiles > 0 ? "balance.tiles" : "chosen", options.limits.tokens, tokens);
}

std::string DescribeMicroBatches(const EpochSummary& epoch, const GroupOptions& options,
                                 const std::string& limits) {
  const std::string method = ToString(options.method);
  std::string text =
      fmt::format("{} micro-batches an epoch (what a rank computes at a time): ", epoch.groups);
  if (!HasFixedSamples(options.method)) {
    return text + fmt::format(
                      "packs by {}, at most {}; {:.1f} samples each on average, {:.1f} % full, "
                      "no padding",
                      method, limits, epoch.samples_per_group(), 100 * epoch.balance.fill_share);
  }
  text += fmt::format("{} samples each (train.micro_batch) by {}, ", options.micro_batch, method);
  text += options.pad ? fmt::format("padded to the longest: {:.1f} % of the tokens are padding",
                                    100 * epoch.balance.pad_ratio)
                      : "not padded";
  return fmt::format("{}; a sample has at most {}", text, limits);
}

std::string DescribeBalance(const EpochSummary& epoch, const EpochSummary& random,
                            const GroupOptions& options, int64_t data_ranks) {
  const bool alike = options.method == GroupMethod::kRandom && options.pad;
  const std::string baseline =
      fmt::format("random micro-batches of {} samples, padded",
                  RandomBaseline(options, epoch.samples_per_group()).micro_batch);
  const double padding = 100 * random.balance.pad_ratio;
  if (data_ranks == 1) {
    return alike ? "one data rank, which waits for no other"
                 : fmt::format("in {}, {:.1f} % of the tokens are padding", baseline, padding);
  }
  std::string text = fmt::format(
      "{} data ranks wait {:.1f} % of the time for the one with the most to do, by FLOPs (of tiles "
      "{:.1f} %, of tokens {:.1f} %)",
      data_ranks, 100 * epoch.balance.dist_ratio_time, 100 * epoch.balance.dist_ratio_vision,
      100 * epoch.balance.dist_ratio_text);
  if (alike) return text;
  return text + fmt::format("; with {}, {:.1f} %, and {:.1f} % of the tokens are padding", baseline,
                            100 * random.balance.dist_ratio_time, padding);
}

}  // namespace equipoise
