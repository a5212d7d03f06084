#include "trainer/planner/plan_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "balance/groups/epoch_windows.h"
#include "configs/base/error.h"
#include "models/families/families.h"
#include "trainer/outputs/html_text.h"
#include "trainer/settings/group_settings.h"

// The workload is that of the first steps of an epoch, with the groups that training would form
// from the same samples, or from an evenly spaced part of these, whose counts are then scaled up.

namespace equipoise {
namespace {

// Most samples of an epoch that are used, evenly spaced, so that planning time is bounded.
constexpr int64_t kMostSamples = 200'000;
constexpr int64_t kSteps = 4;  // steps that are simulated

std::vector<SampleSize> EvenlySpaced(const SampleList& samples, int64_t at_least) {
  const int64_t most = std::min(samples.size, std::max(kMostSamples, at_least));
  std::vector<SampleSize> sizes;
  for (int64_t i = 0; i < most; ++i) {
    const std::optional<SampleSize> size = samples.size_at(i * samples.size / most);
    if (size) sizes.push_back(*size);
  }
  return sizes;
}

struct PlannedEpoch {
  GroupOptions options;
  ImageSpec images;
  int64_t window = 0;                 // balance.window
  std::vector<MicroBatchLoad> loads;  // loads of the groups, in the order of steps
  int64_t oversize = 0;               // samples in no group
  double share = 1;                   // used samples over all samples of the epoch
  std::vector<SampleSize> sizes;      // sizes of the used samples

  EpochWindows Windows(const GroupOptions& formed_by) const {
    return EpochWindows(ListOf(sizes), formed_by, {window, /*epoch=*/0, /*head=*/0});
  }
  // Scales a number of groups or samples to the whole epoch.
  int64_t OfAll(int64_t count) const { return std::llround(static_cast<double>(count) / share); }
  double samples_per_group() const {
    return static_cast<double>(std::ssize(sizes) - oversize) / static_cast<double>(loads.size());
  }
};

// The load of a micro-batch with its padding.
LayerLoad RowLoad(const MicroBatchLoad& one, bool pad) {
  if (!pad) return one.load;
  LayerLoad row = one.load;
  row.tokens = one.longest * one.samples;
  row.token_pairs = CausalPairs(one.longest) * static_cast<double>(one.samples);
  return row;
}

PlannedEpoch PlanFirstEpoch(const SampleCosts& costs, const RunConfig& config,
                            const ModelConfig& model) {
  PlannedEpoch planned;
  if (costs.usable == 0) {
    throw DataError(
        fmt::format("{}: no record can be used; see `equipoise data CONFIG check`", costs.source));
  }
  const int64_t batch = config.train.global_batch;
  planned.sizes = EvenlySpaced(costs.list, kSteps * batch * 16);
  planned.share =
      static_cast<double>(planned.sizes.size()) / static_cast<double>(costs.epoch_samples());
  planned.window = config.balance.window;
  planned.images = ImageSpecOf(model);
  planned.options = GroupOptionsOf(config, FlopsOfLoad(model, config.model.freeze), planned.images);
  ChooseLimits(costs.list, planned.options);
  EpochWindows windows = planned.Windows(planned.options);
  while (windows.Next()) {
    const EpochGroups& part = windows.groups();
    for (const int64_t i : part.order) planned.loads.push_back(part.loads[static_cast<size_t>(i)]);
    planned.oversize += std::ssize(part.oversize);
  }
  if (planned.loads.empty()) {
    throw DataError(
        fmt::format("{}: all samples are above the limits; raise balance.tiles and balance.tokens",
                    costs.source));
  }
  return planned;
}

PlanBalance Measure(const PlannedEpoch& planned, const GroupOptions& options, int data_ranks) {
  const EpochSummary epoch = SummarizeEpoch(planned.Windows(options), data_ranks);
  const BalanceMetrics& metrics = epoch.balance;
  return {ToString(options.method), metrics.pad_ratio,       metrics.dist_ratio_vision,
          metrics.dist_ratio_text,  metrics.dist_ratio_time, planned.OfAll(epoch.groups)};
}

// The load of the largest micro-batch that the limits allow; of what they do not bound, the maximum
// of each component over the groups.
LayerLoad WorstLoad(const PlannedEpoch& planned) {
  const GroupMethod method = planned.options.method;
  const int64_t tokens = planned.options.limits.tokens;
  if (KeepsBothLimits(method)) {
    return SingleSegment(planned.images.LoadOfTiles(planned.options.limit_units()), tokens);
  }
  LayerLoad worst;
  if (!HasFixedSamples(method)) worst = SingleSegment({}, tokens);
  for (const MicroBatchLoad& each : planned.loads) {
    const LayerLoad row = RowLoad(each, planned.options.pad);
    worst.patches = std::max(worst.patches, row.patches);
    worst.patch_pairs = std::max(worst.patch_pairs, row.patch_pairs);
    worst.window_pairs = std::max(worst.window_pairs, row.window_pairs);
    worst.image_tokens = std::max(worst.image_tokens, row.image_tokens);
    worst.tokens = std::max(worst.tokens, row.tokens);
    worst.token_pairs = std::max(worst.token_pairs, row.token_pairs);
    worst.targets = std::max(worst.targets, row.targets);
  }
  return worst;
}

}  // namespace

PlannedRun PlanWorkload(const SampleCosts& costs, const RunConfig& config,
                        const ModelConfig& model) {
  const PlannedEpoch planned = PlanFirstEpoch(costs, config, model);
  PlannedRun run;
  run.limits = planned.options.limits;
  run.images = planned.images;
  run.samples_per_pack = planned.samples_per_group();
  const int64_t batch = config.train.global_batch, num_packs = std::ssize(planned.loads);
  const int64_t steps = std::clamp<int64_t>(num_packs / batch, 1, kSteps);
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<LayerLoad>& packs = run.workload.steps.emplace_back();
    for (int64_t i = step * batch; i < (step + 1) * batch; ++i) {
      const auto pack = static_cast<size_t>(i % num_packs);
      packs.push_back(RowLoad(planned.loads[pack], planned.options.pad));
    }
  }
  run.epoch_packs = planned.OfAll(num_packs);
  run.oversize = planned.OfAll(planned.oversize);
  run.workload.worst = WorstLoad(planned);
  if (planned.options.method == GroupMethod::kIsfPlus) run.workload.dealt_by = planned.options.cost;
  const GroupOptions random = RandomBaseline(planned.options, run.samples_per_pack);
  run.balance = [planned, random](int data_ranks) {
    return BalanceBeforeAfter{Measure(planned, random, data_ranks),
                              Measure(planned, planned.options, data_ranks)};
  };
  return run;
}

std::vector<GroupLimits> LowerLimits(const SampleCosts& costs, const RunConfig& config,
                                     const PlannedRun& planned) {
  GroupOptions options = GroupOptionsOf(config, LoadCost(), planned.images);
  options.limits = planned.limits;
  const BalanceSection& given = config.balance;
  return LowerLimits(costs.list, options, LimitsOf(given.tiles, given.tokens, planned.images));
}

std::optional<GroupLimits> ScaledLimits(const SampleCosts& costs, const RunConfig& config,
                                        const PlannedRun& planned, double size) {
  GroupOptions options = GroupOptionsOf(config, LoadCost(), planned.images);
  options.limits = planned.limits;
  return ScaledLimits(costs.list, options,
                      std::llround(size * static_cast<double>(planned.limits.tokens)));
}

std::string DescribeChange(const PlannedRun& planned, const PlanRequest& request) {
  if (!planned.requested) return "";
  const RequestedPacking& own = *planned.requested;
  const auto text = [&planned](const GroupLimits& limits) {
    const auto tiles = static_cast<double>(planned.images.TilesOf(limits.patches));
    return fmt::format("{} tiles and {} tokens", ReadableNumber(tiles),
                       ReadableNumber(static_cast<double>(limits.tokens)));
  };
  const std::string limits = "limits " + text(planned.limits);
  if (own.gain > 0) {
    return fmt::format(
        "{}, in place of {}: {:.1f} % more tokens/s; {} packs a step in place of {}, which hold as "
        "many samples",
        limits, text(own.limits), 100 * own.gain,
        request.islands.count * planned.workload.global_batch(),
        request.islands.count * own.global_batch);
  }
  return fmt::format(
      "{}, lowered from {} to fit {:.1f} GiB: {:.1f} samples a pack instead of {:.1f}, so a step "
      "of "
      "train.global_batch packs has fewer",
      limits, text(own.limits),
      static_cast<double>(request.cluster.memory_bytes) / (int64_t{1} << 30),
      planned.samples_per_pack, own.samples_per_pack);
}

}  // namespace equipoise
