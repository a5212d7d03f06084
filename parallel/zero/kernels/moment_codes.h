#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "parallel/kernels/bf16.h"

namespace equipoise::kernels {

// A moment in 8 bits (8-bit optimizers, Dettmers et al. 2022, arXiv 2110.02861, section 2): in
// blocks of kCodeBlock elements, each with its largest magnitude `absmax`, an element is kept as
// the code of that value of a map which is nearest to it, in units of absmax.
constexpr int64_t kCodeBlock = 256;
// A block whose absmax is smaller is kept as zeros: products of absmax with a value of the map are
// then normal numbers, and find their codes again.
constexpr float kLeastAbsmax = 0x1p-100F;

// The values of codes, and the code of a number in [-1, 1]: as many bounds as its code are below
// it. Numbers are in buckets by sign, exponent and the first bits of their fraction, so fine that
// bounds in one are equal; of each bucket it keeps that bound, the code up to it, and how many
// more lie behind it.
struct CodeMap {
  static constexpr int kFraction = 7;
  static constexpr int32_t kFirst = (127 - 24) << kFraction, kBuckets = (24 << kFraction) + 1;

  std::array<float, 256> values;  // ascending
  struct Bucket {
    float bound;
    uint8_t code, more;
  };
  std::array<Bucket, 2 * kBuckets> buckets;

  // 256 values and 255 bounds between them, ascending.
  CodeMap(const std::vector<float>& values, const std::vector<float>& bounds);

  EQUIPOISE_DEVICE static int32_t BucketOf(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const auto place = static_cast<int32_t>((bits & 0x7FFFFFFFU) >> (23 - kFraction)) - kFirst;
    return std::clamp(place, 0, kBuckets - 1) + (bits >> 31 != 0 ? kBuckets : 0);
  }
  EQUIPOISE_DEVICE uint8_t CodeIn(int32_t bucket, float x) const {
    const Bucket& in = buckets[static_cast<size_t>(bucket)];
    return static_cast<uint8_t>(in.code + (in.bound < x ? in.more : 0));
  }
  uint8_t CodeOf(float x) const { return CodeIn(BucketOf(x), x); }
};

// Of bitsandbytes' dynamic maps (parallel/kernels/dynamic_map.h), each bound midway between two
// values.
const CodeMap& DynamicCodes(bool is_signed);
const std::vector<float>& DynamicBounds(bool is_signed);

struct MomentCodes {
  uint8_t* codes;  // an element each
  float* absmax;   // a block each
  const CodeMap* map;
};

}  // namespace equipoise::kernels
