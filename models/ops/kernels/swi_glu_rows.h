#pragma once

#include <cmath>
#include <cstdint>

#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// SwiGLU of rows, computed in fp32 and rounded once. `packed`: all pointers are aligned to 16 bytes
// and `size` is a multiple of a Pack's elements.

// out [rows, size] = silu(gate) * up for gate_up [rows, 2 * size], the gates first: 3 elements
// moved for each of the result.
template <class T>
struct SwiGluRow {
  const T* gate_up;
  T* out;
  int64_t size;
  bool packed;

  using Shared = Nothing;
  static constexpr int kPack = kWidest<T>;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const T* from = gate_up + row * 2 * size;
    for (int64_t i = team.thread * kSize; i < size; i += team.threads * kSize) {
      const auto gate = Lanes<kSize>::From(from + i), up = Lanes<kSize>::From(from + size + i);
      Lanes<kSize> result;
      for (int j = 0; j < kSize; ++j)
        result.at[j] = gate.at[j] / (1.0F + expf(-gate.at[j])) * up.at[j];
      result.To(out + row * size + i);
    }
  }
};

// The gradient of gate_up for the gradient `g` of the result: 5 elements moved for each of g.
template <class T>
struct SwiGluGradientRow {
  const T* g;
  const T* gate_up;
  T* out;
  int64_t size;
  bool packed;

  using Shared = Nothing;
  static constexpr int kPack = kWidest<T>;

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const T* from = gate_up + row * 2 * size;
    T* to = out + row * 2 * size;
    for (int64_t i = team.thread * kSize; i < size; i += team.threads * kSize) {
      const auto gate = Lanes<kSize>::From(from + i), up = Lanes<kSize>::From(from + size + i);
      const auto above = Lanes<kSize>::From(g + row * size + i);
      Lanes<kSize> of_gate, of_up;
      for (int j = 0; j < kSize; ++j) {
        const float sigmoid = 1.0F / (1.0F + expf(-gate.at[j])), silu = gate.at[j] * sigmoid;
        of_up.at[j] = above.at[j] * silu;
        of_gate.at[j] = above.at[j] * up.at[j] * (sigmoid + silu * (1.0F - sigmoid));
      }
      of_gate.To(to + i);
      of_up.To(to + size + i);
    }
  }
};

}  // namespace equipoise::kernels
