#include "trainer/plan_workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "configs/error.h"
#include "trainer/group_settings.h"
#include "trainer/html_text.h"

namespace equipoise {
namespace {

// Of more samples, evenly spread ones stand for all: planning time does not grow with the data.
constexpr int64_t kMostSamples = 200'000;
constexpr int64_t kSteps = 4;  // simulated

// What other frameworks do without balancing: as many samples a micro-batch as fill ours.
GroupOptions RandomOptions(const GroupOptions& ours, double samples_per_pack) {
  GroupOptions random = ours;
  random.method = GroupMethod::kRandom;
  random.micro_batch = std::max<int64_t>(1, std::llround(samples_per_pack));
  return random;
}

std::vector<SampleSize> Thinned(const std::vector<SampleSize>& sizes, int64_t at_least) {
  const auto most = static_cast<size_t>(std::max(kMostSamples, at_least));
  if (sizes.size() <= most) return sizes;
  std::vector<SampleSize> thinned;
  for (size_t i = 0; i < most; ++i) thinned.push_back(sizes[i * sizes.size() / most]);
  return thinned;
}

struct PlannedEpoch {
  GroupOptions options;
  EpochGroups epoch;
  double samples = 0;  // in groups
  double share = 1;    // of the samples that stand for all
  bool pad = false;    // balance.pad
  std::vector<SampleSize> sizes;
};

// What a micro-batch asks of the layers.
LayerLoad RowLoad(const MicroBatchLoad& one, bool pad) {
  if (!pad) return one.load;
  LayerLoad row = SingleSegment(one.load.tiles, one.longest);
  row.tokens *= one.samples;
  row.token_pairs *= static_cast<double>(one.samples);
  row.targets = one.load.targets;
  return row;
}

PlannedEpoch PlanFirstEpoch(const SampleCosts& costs, const RunConfig& config,
                            const ModelConfig& model, const GroupLimits& limits) {
  PlannedEpoch planned;
  if (costs.sizes.empty()) {
    throw DataError(costs.source + ": no record can be used; see `equipoise data CONFIG check`");
  }
  const int64_t batch = config.train.global_batch;
  planned.sizes = Thinned(costs.sizes, kSteps * batch * 16);
  planned.share =
      static_cast<double>(planned.sizes.size()) / static_cast<double>(costs.sizes.size());
  planned.pad = config.balance.pad;
  planned.options = GroupOptionsOf(config, FlopsOfLoad(model, config.model.freeze));
  if (limits.tiles > 0) planned.options.limits.tiles = limits.tiles;
  if (limits.tokens > 0) planned.options.limits.tokens = limits.tokens;
  ChooseLimits(costs.sizes, planned.options);
  planned.epoch = PlanEpoch(planned.sizes, planned.options, /*epoch=*/0);
  planned.samples = static_cast<double>(planned.sizes.size() - planned.epoch.oversize.size());
  if (planned.epoch.size() == 0) {
    throw DataError(costs.source + ": all samples are above the limits; raise balance.tiles and " +
                    "balance.tokens");
  }
  return planned;
}

PlanBalance Measure(const PlannedEpoch& planned, const EpochGroups& epoch,
                    const GroupOptions& options, int data_ranks) {
  const BalanceMetrics metrics = MeasureEpoch(epoch, options, data_ranks);
  return {GroupMethodName(options.method),
          metrics.pad_ratio,
          metrics.dist_ratio_vision,
          metrics.dist_ratio_text,
          metrics.dist_ratio_time,
          std::llround(static_cast<double>(epoch.size()) / planned.share)};
}

// The largest micro-batch that the limits allow; of a given number of samples, the largest there
// is.
LayerLoad WorstLoad(const PlannedEpoch& planned) {
  LayerLoad worst = SingleSegment(planned.options.limits.tiles, planned.options.limits.tokens);
  if (!HasFixedSamples(planned.options.method)) return worst;
  worst = {};
  for (const MicroBatchLoad& each : planned.epoch.loads) {
    const LayerLoad row = RowLoad(each, planned.pad);
    worst.tiles = std::max(worst.tiles, row.tiles);
    worst.tokens = std::max(worst.tokens, row.tokens);
    worst.token_pairs = std::max(worst.token_pairs, row.token_pairs);
    worst.targets = std::max(worst.targets, row.targets);
  }
  return worst;
}

}  // namespace

PlannedRun PlanWorkload(const SampleCosts& costs, const RunConfig& config, const ModelConfig& model,
                        const GroupLimits& limits) {
  const PlannedEpoch planned = PlanFirstEpoch(costs, config, model, limits);
  PlannedRun run;
  run.limits = planned.options.limits;
  run.samples_per_pack = planned.samples / static_cast<double>(planned.epoch.size());
  const int64_t batch = config.train.global_batch;
  const int64_t steps = std::clamp<int64_t>(planned.epoch.size() / batch, 1, kSteps);
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<LayerLoad>& packs = run.workload.steps.emplace_back();
    for (int64_t i = step * batch; i < (step + 1) * batch; ++i) {
      const auto place = static_cast<size_t>(i % planned.epoch.size());
      const auto group = static_cast<size_t>(planned.epoch.order[place]);
      packs.push_back(RowLoad(planned.epoch.loads[group], planned.pad));
    }
  }
  run.epoch_packs = planned.epoch.size();
  run.oversize = static_cast<int64_t>(planned.epoch.oversize.size());
  run.workload.worst = WorstLoad(planned);
  if (planned.options.method == GroupMethod::kIsfPlus) run.workload.dealt_by = planned.options.cost;
  const GroupOptions random = RandomOptions(planned.options, run.samples_per_pack);
  run.balance = [planned, random](int data_ranks) {
    const EpochGroups unbalanced = PlanEpoch(planned.sizes, random, /*epoch=*/0);
    return BalanceBeforeAfter{Measure(planned, unbalanced, random, data_ranks),
                              Measure(planned, planned.epoch, planned.options, data_ranks)};
  };
  return run;
}

std::vector<GroupLimits> LowerLimits(const SampleCosts& costs, const RunConfig& config,
                                     const PlannedRun& planned) {
  GroupOptions options = GroupOptionsOf(config, LoadCost());
  options.limits = planned.limits;
  return LowerLimits(costs.sizes, options, {config.balance.tiles, config.balance.tokens});
}

std::string DescribeLowering(const PlannedRun& planned, int64_t memory_bytes) {
  if (!planned.lowered_from) return "";
  const auto text = [](const GroupLimits& limits) {
    return ReadableNumber(static_cast<double>(limits.tiles)) + " tiles and " +
           ReadableNumber(static_cast<double>(limits.tokens)) + " tokens";
  };
  std::array<char, 160> rest{};
  snprintf(rest.data(), rest.size(),
           " to fit %.1f GiB: %.1f samples a pack instead of %.1f, so a step of train.global_batch "
           "packs has fewer",
           static_cast<double>(memory_bytes) / (int64_t{1} << 30), planned.samples_per_pack,
           planned.lowered_from->samples_per_pack);
  return "limits " + text(planned.limits) + ", lowered from " + text(planned.lowered_from->limits) +
         rest.data();
}

}  // namespace equipoise
