// One pass over a chunk joins masters, updates and splits them again: every number is read and
// written once, so that memory sets the pace and not the fp32 copies between loops. The loop is
// compiled for several instruction sets (-O3 -fopenmp-simd -fno-math-errno, without contraction);
// the operations of an element are correctly rounded in each of them.

#include "parallel/zero/kernels/adamw_on_host.h"

#include <bit>
#include <type_traits>

namespace equipoise::kernels {
namespace {

template <class Weight, class Moment>
EQUIPOISE_DEVICE void RunChunk(const AdamWRow<Weight, Moment>& row, const AdamWChunk& chunk) {
  constexpr bool kSplit = !std::is_same_v<Weight, float>;
  const AdamWNumbers numbers = row.Numbers(chunk.group);
  Weight* const weight = row.weight + chunk.weight;
  int16_t* const remainder = kSplit ? row.remainder + chunk.local : nullptr;
  const float* const gradient = row.gradient + chunk.gradient;
  Moment *const average = row.average + chunk.local, *const square = row.square + chunk.local;
  const int64_t size = chunk.size;
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    float p, m = Load(average[i]), v = Load(square[i]);
    if constexpr (kSplit) {
      p = std::bit_cast<float>(JoinedHalves(weight[i], remainder[i]));
    } else {
      p = weight[i];
    }
    numbers.Update(gradient[i], p, m, v);
    Store(m, average[i]);
    Store(v, square[i]);
    if constexpr (kSplit) {
      const auto bits = std::bit_cast<uint32_t>(p);
      weight[i] = RoundedHalf(bits);
      remainder[i] = RemainingHalf(bits);
    } else {
      weight[i] = p;
    }
  }
}

template <class Row>
EQUIPOISE_DEVICE void RunChunks(const Row& row, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) RunChunk(row, row.chunks[i]);
}

template <class Row>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) void RunAvx512(
    const Row& row, int64_t begin, int64_t end) {
  RunChunks(row, begin, end);
}

template <class Row>
__attribute__((target("avx2,fma"))) void RunAvx2(const Row& row, int64_t begin, int64_t end) {
  RunChunks(row, begin, end);
}

// target_clones takes no templates.
bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("fma");
}
bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

template <class Weight, class Moment>
void RunOnHost(const AdamWRow<Weight, Moment>& row, int64_t begin, int64_t end) {
  if (HasAvx512()) return RunAvx512(row, begin, end);
  if (HasAvx2()) return RunAvx2(row, begin, end);
  RunChunks(row, begin, end);
}

template void RunOnHost(const AdamWRow<float, float>&, int64_t, int64_t);
template void RunOnHost(const AdamWRow<float, Bf16>&, int64_t, int64_t);
template void RunOnHost(const AdamWRow<Bf16, float>&, int64_t, int64_t);
template void RunOnHost(const AdamWRow<Bf16, Bf16>&, int64_t, int64_t);

}  // namespace equipoise::kernels
