#include "models/weights/random_numbers.h"

#include <bit>
#include <cmath>

#include "configs/base/vector_clones.h"

// Compiled without contraction to fused multiply-adds, so that all instruction sets give the same
// bits. Logarithm, sine and cosine are series without calls and branches: loops with them become
// vectors. The numbers are within 4e-16 of those by the C library.

namespace equipoise {
namespace {

#define EQUIPOISE_INLINE inline __attribute__((always_inline))

// A uniform number in (0, 1], of SplitMix64.
EQUIPOISE_INLINE double Uniform(uint64_t key, uint64_t counter) {
  uint64_t x = key + (counter + 1) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  x = (x ^ (x >> 31)) >> 11;
  return (static_cast<double>(static_cast<int64_t>(x)) + 1.0) * 0x1p-53;
}

// The natural logarithm of a normal number above 0: x = 2^n m with sqrt(1/2) <= m < sqrt(2), and
// ln m = 2 artanh(s) with s = (m - 1) / (m + 1), |s| <= 0.172.
EQUIPOISE_INLINE double Log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd, kFraction = 0x000fffffffffffff;
  const uint64_t from = std::bit_cast<uint64_t>(x) - kSqrtHalf;  // n, and bits of m behind it
  const auto n = static_cast<double>(static_cast<int64_t>(from) >> 52);
  const auto m = std::bit_cast<double>((from & kFraction) + kSqrtHalf);
  const double f = m - 1.0, s = f / (m + 1.0), z = s * s;
  double sum = 1.0 / 23;
  sum = sum * z + 1.0 / 21;
  sum = sum * z + 1.0 / 19;
  sum = sum * z + 1.0 / 17;
  sum = sum * z + 1.0 / 15;
  sum = sum * z + 1.0 / 13;
  sum = sum * z + 1.0 / 11;
  sum = sum * z + 1.0 / 9;
  sum = sum * z + 1.0 / 7;
  sum = sum * z + 1.0 / 5;
  sum = sum * z + 1.0 / 3;
  return n * 0.6931471805599453 + 2.0 * (s + s * (z * sum));
}

// Sine and cosine of a turn's part 0 <= u <= 1: of what is left of its nearest quarter q, an eighth
// at most, by their series, and turned by q.
EQUIPOISE_INLINE void Turn(double u, double* cosine, double* sine) {
  constexpr double kTwoPi = 6.283185307179586;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double shifted = 4.0 * u + kRound;
  const double x = kTwoPi * (u - 0.25 * (shifted - kRound)), z = x * x;
  double s = 1.0 / 355687428096000;
  s = s * z - 1.0 / 1307674368000;
  s = s * z + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = x + x * (z * s);
  double c = -1.0 / 6402373705728000;
  c = c * z + 1.0 / 20922789888000;
  c = c * z - 1.0 / 87178291200;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = 1.0 - 0.5 * z + z * z * c;
  const auto quarters = std::bit_cast<uint64_t>(shifted);
  const bool odd = (quarters & 1) != 0;
  const uint64_t cosine_sign = (quarters + 1) >> 1 << 63, sine_sign = quarters >> 1 << 63;
  *cosine = std::bit_cast<double>(std::bit_cast<uint64_t>(odd ? s : c) ^ cosine_sign);
  *sine = std::bit_cast<double>(std::bit_cast<uint64_t>(odd ? c : s) ^ sine_sign);
}

EQUIPOISE_INLINE void NormalPair(uint64_t key, double deviation, int64_t pair, float* out) {
  const uint64_t counter = 2 * static_cast<uint64_t>(pair);
  double cosine, sine;
  Turn(Uniform(key, counter + 1), &cosine, &sine);
  const double radius = deviation * std::sqrt(-2.0 * Log(Uniform(key, counter)));
  out[0] = static_cast<float>(radius * cosine);
  out[1] = static_cast<float>(radius * sine);
}

EQUIPOISE_VECTOR void NormalPairs(uint64_t key, double deviation, int64_t first, int64_t last,
                                  float* out) {
  for (int64_t pair = first; pair < last; ++pair) {
    NormalPair(key, deviation, pair, out + 2 * (pair - first));
  }
}

EQUIPOISE_VECTOR void Uniforms(uint64_t key, double bound, int64_t first, int64_t last,
                               float* out) {
  for (int64_t i = first; i < last; ++i) {
    const double unit = Uniform(key, static_cast<uint64_t>(i));
    out[i - first] = static_cast<float>(bound * (2 * unit - 1));
  }
}

}  // namespace

void DrawNormal(uint64_t key, double deviation, int64_t first, int64_t last, float* out) {
  if (first >= last) return;
  float pair[2];
  if (first % 2 == 1) {
    NormalPair(key, deviation, first / 2, pair);
    *out++ = pair[1];
    ++first;
  }
  NormalPairs(key, deviation, first / 2, last / 2, out);
  if (last % 2 == 0 || first >= last) return;
  NormalPair(key, deviation, last / 2, pair);
  out[last - 1 - first] = pair[0];
}

void DrawUniform(uint64_t key, double bound, int64_t first, int64_t last, float* out) {
  Uniforms(key, bound, first, last, out);
}

}  // namespace equipoise
