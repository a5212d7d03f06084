#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "parallel/kernels/random_bits.h"
#include "parallel/kernels/row_team.h"
#include "parallel/kernels/split_bits.h"

namespace equipoise::kernels {

// Neighbouring elements of one parameter that a rank updates, and where they begin in the buffers
// of weights, of gradients, and of the rank's shard.
struct AdamWChunk {
  int64_t weight, gradient, local, size;
  int64_t group;  // whose learning rate and decay they have
  // Of a weight without a master: a hash of its name, and where they lie in the whole tensor.
  int64_t key = 0;
  WholePlace place = {};

  // What element i is rounded by in a step.
  EQUIPOISE_DEVICE uint32_t Random(uint64_t step, int64_t i) const {
    return RandomBits(static_cast<uint64_t>(key) ^ step, static_cast<uint64_t>(place.At(i)));
  }
};

// A step of AdamW: rates and decays of `groups` groups, the factor that clips gradients (1: none),
// and its number (1 = the first).
struct AdamWStep {
  const double *lr, *weight_decay;
  size_t groups;
  double beta1, beta2, eps, clip;
  int64_t number;
};

// What is the same for all elements of a group, and what a step makes of one: of its gradient g and
// master p, and of its moments m and v.
//
// The operations are those of ATen's vectorised loop for CPUs (FusedAdamKernel.cpp), in its order,
// fused where it fuses, so that the bits are the same; the gradient is clipped first, by a product
// that is rounded, as a pass over all gradients would do. Compile without contraction of products
// and sums (-ffp-contract=off, nvcc's -fmad=false), to fuse nothing else.
struct AdamWNumbers {
  float clip;
  float beta2, one_less_beta1, one_less_beta2;
  float root_correction;  // sqrt(1 - beta2^step)
  float eps;
  float kept;  // 1 - lr * weight_decay
  float step;  // -lr / (1 - beta1^step)

  EQUIPOISE_DEVICE void Update(float g, float& p, float& m, float& v) const {
    g *= clip;
    m = fmaf(one_less_beta1, g - m, m);
    v = fmaf(one_less_beta2 * g, g, v * beta2);
    const float divisor = sqrtf(v) / root_correction + eps;
    p = p * kept + step * m / divisor;
  }
};

// One step of AdamW: row r updates the elements of chunk r, which are all read and written once. A
// weight is the fp32 master itself, or its bf16 half, `remainder` the other (split_master.h), or a
// bf16 number without a master, to which the step's fp32 one is rounded stochastically. The
// moments are rounded after the step where they are bf16. `packed`: every chunk begins at a
// multiple of kPack elements, and all buffers at one of 16 bytes.
template <class Weight, class Moment, bool kHasMaster = true>
struct AdamWRow {
  static constexpr int kMostGroups = 128;

  const AdamWChunk* chunks;
  Weight* weight;
  int16_t* remainder;  // null where the weight is the master, or has none
  const float* gradient;
  Moment *average, *square;
  float clip;
  float beta2, one_less_beta1, one_less_beta2;
  float root_correction;  // sqrt(1 - beta2^step)
  float eps;
  // Of each group: 1 - lr * weight_decay, and -lr / (1 - beta1^step).
  float kept[kMostGroups], step[kMostGroups];
  bool packed;
  uint64_t random;  // without masters: a hash of seed and step

  // Sets the numbers of a step, computed in fp64. REQUIRES: at most kMostGroups groups.
  void Begin(const AdamWStep& with) {
    const auto number = static_cast<double>(with.number);
    clip = static_cast<float>(with.clip);
    beta2 = static_cast<float>(with.beta2);
    one_less_beta1 = static_cast<float>(1 - with.beta1);
    one_less_beta2 = static_cast<float>(1 - with.beta2);
    root_correction = static_cast<float>(std::sqrt(1 - std::pow(with.beta2, number)));
    eps = static_cast<float>(with.eps);
    for (size_t i = 0; i < with.groups; ++i) {
      kept[i] = static_cast<float>(1 - with.lr[i] * with.weight_decay[i]);
      step[i] = static_cast<float>(-with.lr[i] / (1 - std::pow(with.beta1, number)));
    }
  }
  EQUIPOISE_DEVICE AdamWNumbers Numbers(int64_t group) const {
    return {clip, beta2,       one_less_beta1, one_less_beta2, root_correction,
            eps,  kept[group], step[group]};
  }

  using Shared = Nothing;
  static constexpr int kPack = kWidest<float>;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const AdamWChunk chunk = chunks[row];
    const int64_t whole = chunk.size / kSize * kSize;
    for (int64_t i = team.thread * kSize; i < whole; i += team.threads * kSize)
      Update<kSize>(chunk, i);
    for (int64_t i = whole + team.thread; i < chunk.size; i += team.threads) Update<1>(chunk, i);
  }

 private:
  template <int kSize>
  EQUIPOISE_DEVICE void Update(const AdamWChunk& chunk, int64_t i) const {
    const int64_t flat = chunk.weight + i, local = chunk.local + i;
    const auto g = Lanes<kSize>::From(gradient + chunk.gradient + i);
    auto p = Master<kSize>(flat, local);
    auto m = Lanes<kSize>::From(average + local), v = Lanes<kSize>::From(square + local);
    const AdamWNumbers numbers = Numbers(chunk.group);
    for (int j = 0; j < kSize; ++j) numbers.Update(g.at[j], p.at[j], m.at[j], v.at[j]);
    m.To(average + local);
    v.To(square + local);
    SetMaster(p, chunk, i);
  }

  template <int kSize>
  EQUIPOISE_DEVICE Lanes<kSize> Master(int64_t flat, int64_t local) const {
    if constexpr (std::is_same_v<Weight, float> || !kHasMaster) {
      return Lanes<kSize>::From(weight + flat);
    } else {
      const auto high = Pack<Bf16, kSize>::From(weight + flat);
      const auto low = Pack<int16_t, kSize>::From(remainder + local);
      Lanes<kSize> master;
      for (int j = 0; j < kSize; ++j)
        master.at[j] = std::bit_cast<float>(JoinedHalves(high.at[j], low.at[j]));
      return master;
    }
  }

  template <int kSize>
  EQUIPOISE_DEVICE void SetMaster(const Lanes<kSize>& master, const AdamWChunk& chunk,
                                  int64_t i) const {
    Weight* const to = weight + chunk.weight + i;
    if constexpr (std::is_same_v<Weight, float>) {
      master.To(to);
    } else if constexpr (!kHasMaster) {
      Pack<Bf16, kSize> rounded;
      for (int j = 0; j < kSize; ++j)
        rounded.at[j] = RoundedByChance(master.at[j], chunk.Random(random, i + j));
      rounded.To(to);
    } else {
      Pack<Bf16, kSize> high;
      Pack<int16_t, kSize> low;
      for (int j = 0; j < kSize; ++j) {
        const auto bits = std::bit_cast<uint32_t>(master.at[j]);
        high.at[j] = RoundedHalf(bits);
        low.at[j] = RemainingHalf(bits);
      }
      high.To(to);
      low.To(remainder + chunk.local + i);
    }
  }
};

}  // namespace equipoise::kernels
