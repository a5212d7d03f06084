#include "trainer/group_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "configs/error.h"

namespace equipoise {

GroupOptions GroupOptionsOf(const RunConfig& config, const LoadCost& cost) {
  const BalanceSection& balance = config.balance;
  GroupOptions options;
  options.method = ParseGroupMethod(balance.group);
  if (balance.pad && !HasFixedSamples(options.method)) {
    throw ConfigError("balance.pad: " + balance.group +
                      " fills micro-batches without padding; use group: random or length_grouped");
  }
  options.limits.tiles = balance.tiles;
  options.limits.tokens = balance.tokens > 0 ? balance.tokens : config.data.max_tokens;
  // Limits that a run was planned with may be lower than those of its configuration.
  const int64_t most = std::max(balance.tokens, config.data.max_tokens);
  if (balance.min_tokens > most) {
    throw ConfigError(internal::Join("balance.min_tokens: ", balance.min_tokens,
                                     " is more than the ", most,
                                     " tokens that a pack may have; lower it"));
  }
  options.min_tiles = balance.min_tiles;
  options.min_tokens = balance.min_tokens;
  options.rounds = balance.rounds;
  options.micro_batch = config.train.micro_batch;
  options.pad = balance.pad;
  options.global_batch = config.train.global_batch;
  options.cost = cost;
  options.seed = static_cast<uint64_t>(config.train.seed);
  return options;
}

GroupOptions RandomBaseline(const GroupOptions& options, double samples_per_group) {
  GroupOptions random = options;
  random.method = GroupMethod::kRandom;
  random.pad = true;
  random.micro_batch = std::max<int64_t>(1, std::llround(samples_per_group));
  return random;
}

std::string DescribeBalance(const BalanceMetrics& metrics) {
  std::array<char, 128> text{};
  snprintf(text.data(), text.size(), "pad %.3f, dist vision %.3f, text %.3f, time %.3f",
           metrics.pad_ratio, metrics.dist_ratio_vision, metrics.dist_ratio_text,
           metrics.dist_ratio_time);
  return text.data();
}

}  // namespace equipoise
