#include "parallel/zero/kernels/moment_codes.h"

#include <limits>

#include "configs/base/error.h"
#include "parallel/kernels/dynamic_map.h"

namespace equipoise::kernels {
namespace {

std::vector<float> Middles(const std::vector<float>& values) {
  std::vector<float> middles;
  for (size_t i = 1; i < values.size(); ++i) middles.push_back((values[i - 1] + values[i]) / 2);
  return middles;
}

}  // namespace

CodeMap::CodeMap(const std::vector<float>& of_codes, const std::vector<float>& between) {
  EQUIPOISE_CHECK(of_codes.size() == values.size() && between.size() + 1 == values.size());
  std::copy(of_codes.begin(), of_codes.end(), values.begin());
  buckets.fill({std::numeric_limits<float>::infinity(), 0, 0});
  for (const float bound : between) {
    Bucket& bucket = buckets[static_cast<size_t>(BucketOf(bound))];
    EQUIPOISE_CHECK(bucket.more == 0 || bucket.bound == bound, bound, " and ", bucket.bound,
                    " are in one bucket");
    bucket.bound = bound;
    ++bucket.more;
  }
  // Ascending: the negative numbers from -1 on, then the others.
  uint8_t code = 0;
  const auto count = [&](int32_t bucket) {
    Bucket& at = buckets[static_cast<size_t>(bucket)];
    at.code = code;
    code = static_cast<uint8_t>(code + at.more);
  };
  for (int32_t i = kBuckets; i-- > 0;) count(kBuckets + i);
  for (int32_t i = 0; i < kBuckets; ++i) count(i);
}

const std::vector<float>& DynamicBounds(bool is_signed) {
  static const std::vector<float> kSigned = Middles(DynamicMap(true)),
                                  kUnsigned = Middles(DynamicMap(false));
  return is_signed ? kSigned : kUnsigned;
}

const CodeMap& DynamicCodes(bool is_signed) {
  static const CodeMap kSigned(DynamicMap(true), DynamicBounds(true)),
      kUnsigned(DynamicMap(false), DynamicBounds(false));
  return is_signed ? kSigned : kUnsigned;
}

}  // namespace equipoise::kernels
