#include "balance/load/balance_metrics.h"

#include <algorithm>
#include <cmath>

namespace equipoise {

MicroBatchLoad LoadOfGroup(std::span<const SampleSize> sizes, std::span<const int64_t> samples) {
  MicroBatchLoad group;
  group.load = GroupLoad(sizes, samples);
  group.samples = std::ssize(samples);
  for (const int64_t sample : samples) {
    group.longest = std::max<int64_t>(group.longest, sizes[static_cast<size_t>(sample)].tokens);
  }
  return group;
}

double DistRatio(std::span<const double> loads, int64_t ranks) {
  double largest = 0, sum = 0;
  for (const double load : loads) {
    largest = std::max(largest, load);
    sum += load;
  }
  if (largest == 0) return 0;
  return 1 - sum / (largest * static_cast<double>(ranks));
}

void BalanceMeter::AddStep(std::span<const MicroBatchLoad> step) {
  const auto ranks = static_cast<size_t>(options_.data_ranks);
  for (size_t begin = 0; begin < step.size(); begin += ranks) {
    AddRow(step.subspan(begin, std::min(ranks, step.size() - begin)));
  }
  double tokens = 0;
  for (const MicroBatchLoad& one : step) tokens += static_cast<double>(one.load.tokens);
  if (std::ssize(step) > largest_step_) full_ = {};
  largest_step_ = std::max(largest_step_, std::ssize(step));
  if (std::ssize(step) < largest_step_) return;  // the rest of the epoch
  ++full_.steps;
  full_.sum += tokens;
  full_.squares += tokens * tokens;
}

void BalanceMeter::AddRow(std::span<const MicroBatchLoad> row) {
  std::vector<double> vision, text, time;
  for (const MicroBatchLoad& one : row) {
    vision.push_back(static_cast<double>(one.load.patches));
    text.push_back(static_cast<double>(options_.padded ? one.longest : one.load.tokens));
    LayerLoad computed = one.load;
    if (options_.padded) {
      computed.tokens = one.longest * one.samples;
      computed.token_pairs = CausalPairs(one.longest) * static_cast<double>(one.samples);
    }
    tokens_ += one.load.tokens;
    computed_ += computed.tokens;
    room_ += options_.room > 0 ? options_.room : computed.tokens;
    time.push_back(options_.cost(computed));
  }
  vision_ += DistRatio(vision, options_.data_ranks);
  text_ += DistRatio(text, options_.data_ranks);
  time_ += DistRatio(time, options_.data_ranks);
  ++rows_;
}

BalanceMetrics BalanceMeter::metrics() const {
  BalanceMetrics result;
  if (rows_ == 0) return result;
  const auto tokens = static_cast<double>(tokens_);
  if (computed_ > 0) result.pad_ratio = 1 - tokens / static_cast<double>(computed_);
  if (room_ > 0) result.fill_share = tokens / static_cast<double>(room_);
  const auto rows = static_cast<double>(rows_);
  result.dist_ratio_vision = vision_ / rows;
  result.dist_ratio_text = text_ / rows;
  result.dist_ratio_time = time_ / rows;
  if (full_.sum > 0) {
    const double mean = full_.sum / full_.steps;
    const double variance = std::max(0.0, full_.squares / full_.steps - mean * mean);
    result.step_variation = std::sqrt(variance) / mean;
  }
  return result;
}

}  // namespace equipoise
