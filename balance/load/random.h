#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace equipoise {

// The SplitMix64 generator. The standard's distributions and std::shuffle may differ between
// implementations; the order of training data must not.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

  // Uniform in [0, bound), without bias. REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) {
    const uint64_t unfair = (0 - bound) % bound;  // 2^64 mod bound
    uint64_t drawn = Next();
    while (drawn < unfair) drawn = Next();
    return drawn % bound;
  }

 private:
  uint64_t state_;
};

// A generator for one purpose; streams of different (seed, epoch, purpose) are independent.
inline SplitMix KeyedRandom(uint64_t seed, uint64_t epoch, uint64_t purpose) {
  uint64_t key = SplitMix(seed).Next();
  key = SplitMix(key ^ epoch).Next();
  return SplitMix(SplitMix(key ^ purpose).Next());
}

// Fisher-Yates shuffle.
template <class Value>
void Shuffle(std::span<Value> values, SplitMix& random) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.Below(i)]);
}

}  // namespace equipoise
