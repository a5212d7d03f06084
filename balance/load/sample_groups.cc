#include "balance/load/sample_groups.h"

#include <numeric>

namespace equipoise {

SampleList ListOf(std::span<const SampleSize> sizes) {
  return {std::ssize(sizes), [sizes](int64_t place) { return sizes[static_cast<size_t>(place)]; }};
}

void SampleGroups::Add(std::span<const int64_t> samples) {
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  begins_.push_back(num_samples());
}

void SampleGroups::Reserve(int64_t groups, int64_t samples) {
  begins_.reserve(static_cast<size_t>(groups) + 1);
  samples_.reserve(static_cast<size_t>(samples));
}

std::span<const int64_t> SampleGroups::operator[](int64_t group) const {
  const auto begin = static_cast<size_t>(begins_[static_cast<size_t>(group)]);
  const auto end = static_cast<size_t>(begins_[static_cast<size_t>(group) + 1]);
  return std::span(samples_).subspan(begin, end - begin);
}

std::vector<int64_t> WithinLimits(std::span<const SampleSize> sizes,
                                  std::span<const int64_t> samples, const GroupLimits& limits,
                                  std::vector<int64_t>& oversize) {
  std::vector<int64_t> within;
  within.reserve(samples.size());
  for (const int64_t sample : samples) {
    (limits.Hold(sizes[static_cast<size_t>(sample)]) ? within : oversize).push_back(sample);
  }
  return within;
}

std::vector<int64_t> Indices(int64_t size) {
  std::vector<int64_t> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

LayerLoad GroupLoad(std::span<const SampleSize> sizes, std::span<const int64_t> samples) {
  LayerLoad load;
  for (const int64_t sample : samples) {
    const SampleSize& size = sizes[static_cast<size_t>(sample)];
    load.patches += size.patches;
    load.patch_pairs += size.patch_pairs;
    load.window_pairs += size.window_pairs;
    load.image_tokens += size.image_tokens;
    load.tokens += size.tokens;
    load.token_pairs += CausalPairs(size.tokens);
    load.targets += size.targets;
  }
  return load;
}

}  // namespace equipoise
