// One pass over a chunk joins masters, updates and splits them again: every number is read and
// written once, so that memory sets the pace and not the fp32 copies between loops. The loop is
// compiled for several instruction sets (-O3 -fopenmp-simd -fno-math-errno, without contraction);
// the operations of an element are correctly rounded in each of them.
//
// Weights without masters are updated by runs of elements that are neighbours in the whole tensor
// too, so that the numbers of their random bits are counted up.
//
// Moments in 8 bits pass through two blocks of fp32 numbers on the stack. Tables are looked up by
// plain loops: vectors would gather from them, which is slower than the loads one by one.

#include "parallel/zero/kernels/adamw_on_host.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

namespace equipoise::kernels {
namespace {

// Where neighbouring elements of one parameter lie.
template <class Weight, class Moment>
struct Elements {
  Weight* weight;
  int16_t* remainder;  // null where the weight is the master, or has none
  const float* gradient;
  Moment *average, *square;
  int64_t size;

  // `count` of them from element i on. REQUIRES: no remainder.
  EQUIPOISE_DEVICE Elements Part(int64_t i, int64_t count) const {
    return {weight + i, nullptr, gradient + i, average + i, square + i, count};
  }
};

// What weights without masters are rounded by: a key, and the first's number in the whole tensor.
struct Randoms {
  uint64_t key = 0, first = 0;
};

template <bool kHasMaster, class Weight, class Moment>
EQUIPOISE_DEVICE void Update(const AdamWNumbers& numbers, const Elements<Weight, Moment>& all,
                             const Randoms& randoms) {
  constexpr bool kSplit = kHasMaster && !std::is_same_v<Weight, float>;
  Weight* const weight = all.weight;
  int16_t* const remainder = all.remainder;
  const float* const gradient = all.gradient;
  Moment *const average = all.average, *const square = all.square;
  const int64_t size = all.size;
  const uint64_t key = randoms.key, first = randoms.first;
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    float p, m = Load(average[i]), v = Load(square[i]);
    if constexpr (kSplit) {
      p = std::bit_cast<float>(JoinedHalves(weight[i], remainder[i]));
    } else {
      p = Load(weight[i]);
    }
    numbers.Update(gradient[i], p, m, v);
    Store(m, average[i]);
    Store(v, square[i]);
    if constexpr (kSplit) {
      const auto bits = std::bit_cast<uint32_t>(p);
      weight[i] = RoundedHalf(bits);
      remainder[i] = RemainingHalf(bits);
    } else if constexpr (kHasMaster) {
      weight[i] = p;
    } else {
      weight[i] = RoundedByChance(p, RandomBits(key, first + static_cast<uint64_t>(i)));
    }
  }
}

// Elements of a chunk, from its element `begin` on. `random`: as AdamWRow's.
template <bool kHasMaster, class Weight, class Moment>
EQUIPOISE_DEVICE void UpdateIn(const AdamWChunk& chunk, int64_t begin, const AdamWNumbers& numbers,
                               const Elements<Weight, Moment>& all, uint64_t random) {
  if constexpr (kHasMaster) {
    Update<true>(numbers, all, {});
  } else {
    for (int64_t i = 0; i < all.size;) {
      const int64_t end = std::min(all.size, chunk.place.EndOfRun(begin + i) - begin);
      Update<false>(numbers, all.Part(i, end - i),
                    {static_cast<uint64_t>(chunk.key) ^ random,
                     static_cast<uint64_t>(chunk.place.At(begin + i))});
      i = end;
    }
  }
}

template <class Weight, class Moment, bool kHasMaster>
EQUIPOISE_DEVICE void RunChunk(const AdamWRow<Weight, Moment, kHasMaster>& row,
                               const AdamWChunk& chunk) {
  constexpr bool kSplit = kHasMaster && !std::is_same_v<Weight, float>;
  UpdateIn<kHasMaster>(
      chunk, 0, row.Numbers(chunk.group),
      Elements<Weight, Moment>{row.weight + chunk.weight,
                               kSplit ? row.remainder + chunk.local : nullptr,
                               row.gradient + chunk.gradient, row.average + chunk.local,
                               row.square + chunk.local, chunk.size},
      row.random);
}

EQUIPOISE_DEVICE void ReadBlock(const MomentCodes& from, int64_t begin, int64_t size,
                                float* numbers) {
  const uint8_t* const codes = from.codes + begin;
  const float* const values = from.map->values.data();
  const float absmax = from.absmax[begin / kCodeBlock];
  for (int64_t i = 0; i < size; ++i) numbers[i] = values[codes[i]] * absmax;
}

EQUIPOISE_DEVICE void WriteBlock(const float* numbers, int64_t begin, int64_t size,
                                 const MomentCodes& to) {
  uint8_t* const codes = to.codes + begin;
  float absmax = 0;
#pragma omp simd reduction(max : absmax)
  for (int64_t i = 0; i < size; ++i) absmax = std::max(absmax, std::abs(numbers[i]));
  if (absmax < kLeastAbsmax) absmax = 0;
  const float unit = absmax > 0 ? absmax : 1;
  float x[kCodeBlock];
  int32_t bucket[kCodeBlock];
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    x[i] = numbers[i] / unit;
    bucket[i] = CodeMap::BucketOf(x[i]);
  }
  const CodeMap& map = *to.map;
  for (int64_t i = 0; i < size; ++i) codes[i] = map.CodeIn(bucket[i], x[i]);
  to.absmax[begin / kCodeBlock] = absmax;
}

template <class Weight, bool kHasMaster>
EQUIPOISE_DEVICE void RunChunk(const AdamWOnCodes<Weight, kHasMaster>& row,
                               const AdamWChunk& chunk) {
  constexpr bool kSplit = kHasMaster && !std::is_same_v<Weight, float>;
  const AdamWRow<Weight, float, kHasMaster>& rows = row.rows;
  const AdamWNumbers numbers = rows.Numbers(chunk.group);
  float average[kCodeBlock], square[kCodeBlock];
  for (int64_t i = 0; i < chunk.size; i += kCodeBlock) {
    const int64_t size = std::min(kCodeBlock, chunk.size - i), local = chunk.local + i;
    ReadBlock(row.average, local, size, average);
    ReadBlock(row.square, local, size, square);
    UpdateIn<kHasMaster>(
        chunk, i, numbers,
        Elements<Weight, float>{rows.weight + chunk.weight + i,
                                kSplit ? rows.remainder + local : nullptr,
                                rows.gradient + chunk.gradient + i, average, square, size},
        rows.random);
    WriteBlock(average, local, size, row.average);
    WriteBlock(square, local, size, row.square);
  }
}

template <class Weight, class Moment, bool kHasMaster>
const AdamWChunk* ChunksOf(const AdamWRow<Weight, Moment, kHasMaster>& row) {
  return row.chunks;
}
template <class Weight, bool kHasMaster>
const AdamWChunk* ChunksOf(const AdamWOnCodes<Weight, kHasMaster>& row) {
  return row.rows.chunks;
}

template <class Row>
EQUIPOISE_DEVICE void RunChunks(const Row& row, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) RunChunk(row, ChunksOf(row)[i]);
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

template <class Row>
void RunOnHost(const Row& row, int64_t begin, int64_t end) {
  if (HasAvx512()) return RunAvx512(row, begin, end);
  if (HasAvx2()) return RunAvx2(row, begin, end);
  RunChunks(row, begin, end);
}

template void RunOnHost(const AdamWRow<float, float>&, int64_t, int64_t);
template void RunOnHost(const AdamWRow<float, Bf16>&, int64_t, int64_t);
template void RunOnHost(const AdamWRow<Bf16, float>&, int64_t, int64_t);
template void RunOnHost(const AdamWRow<Bf16, Bf16>&, int64_t, int64_t);
template void RunOnHost(const AdamWOnCodes<float>&, int64_t, int64_t);
template void RunOnHost(const AdamWOnCodes<Bf16>&, int64_t, int64_t);
template void RunOnHost(const AdamWRow<Bf16, float, false>&, int64_t, int64_t);
template void RunOnHost(const AdamWRow<Bf16, Bf16, false>&, int64_t, int64_t);
template void RunOnHost(const AdamWOnCodes<Bf16, false>&, int64_t, int64_t);

}  // namespace equipoise::kernels
