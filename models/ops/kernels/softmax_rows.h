#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// Cross entropy of rows of logits [rows, size], computed in fp32 and rounded once. Rows may begin
// anywhere: packs of 16 bytes are taken between the first and the last address that allows it.

template <int kCount>
struct Elements {
  static constexpr int kSize = kCount;
};

// Calls visit(Elements<n>(), i) for every n elements of a row from i on, shared out over the team.
template <class T, class Team, class Visit>
EQUIPOISE_DEVICE void OverRow(const Team& team, const T* row, int64_t size, const Visit& visit) {
  constexpr int kSize = kWidest<T>;
  const auto place = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % kSize);
  int64_t first = (kSize - place) % kSize;
  if (first > size) first = size;
  const int64_t last = first + (size - first) / kSize * kSize;
  for (int64_t i = team.thread; i < first; i += team.threads) visit(Elements<1>(), i);
  for (int64_t i = first + team.thread * kSize; i < last; i += team.threads * kSize)
    visit(Elements<kSize>(), i);
  for (int64_t i = last + team.thread; i < size; i += team.threads) visit(Elements<1>(), i);
}

// What the loss needs of each row: statistics [3, rows], the largest logit, the sum of
// exp(logit - largest), and the logit of the target, or 0 where `ids` has none of these logits.
// Every logit is read once.
template <class T>
struct SoftmaxStatisticsRow {
  const T* logits;
  const int64_t* ids;
  float* statistics;
  int64_t rows, size, stride;  // between the rows of logits

  struct Shared {
    float numbers[kMostThreads];
  };
  static constexpr int kPack = 1;

  template <int, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    const T* from = logits + row * stride;
    float largest = -FLT_MAX;
    Lanes<kWidest<T>> sums = {};
    OverRow(team, from, size, [&](auto elements, int64_t i) {
      constexpr int kSize = decltype(elements)::kSize;
      const auto x = Lanes<kSize>::From(from + i);
      float most = largest;
      for (int j = 0; j < kSize; ++j) most = fmaxf(most, x.at[j]);
      if (most > largest) {
        const float factor = expf(largest - most);
        for (float& sum : sums.at) sum *= factor;
        largest = most;
      }
      for (int j = 0; j < kSize; ++j) sums.at[j] += expf(x.at[j] - largest);
    });
    float sum = 0;
    for (const float part : sums.at) sum += part;
    const float most =
        OverTeam(team, largest, team.shared.numbers, [](float a, float b) { return fmaxf(a, b); });
    const float total = OverTeam(team, sum * expf(largest - most), team.shared.numbers,
                                 [](float a, float b) { return a + b; });
    if (team.thread != 0) return;
    const int64_t id = ids[row];
    statistics[row] = most;
    statistics[rows + row] = total;
    statistics[2 * rows + row] = id >= 0 && id < size ? Load(from[id]) : 0.0F;
  }
};

// The gradient of the loss with respect to the logits, in their place: factor * (softmax - 1 at the
// target), of the whole vocabulary's statistics. Every logit is read and written once. `weights`
// may be null: all 1.
template <class T>
struct CrossEntropyGradientRow {
  T* logits;
  const int64_t* ids;
  const float* statistics;
  const float* weights;
  int64_t rows, size, stride;
  float scale;

  using Shared = Nothing;
  static constexpr int kPack = 1;

  template <int, class Team>
  EQUIPOISE_DEVICE void Run(int64_t row, const Team& team) const {
    T* at = logits + row * stride;
    const float largest = statistics[row], part = 1.0F / statistics[rows + row];
    const float factor = weights == nullptr ? scale : weights[row] * scale;
    const int64_t id = ids[row];
    OverRow(team, at, size, [&](auto elements, int64_t i) {
      constexpr int kSize = decltype(elements)::kSize;
      auto x = Lanes<kSize>::From(at + i);
      for (int j = 0; j < kSize; ++j) {
        const float probability = expf(x.at[j] - largest) * part;
        x.at[j] = (i + j == id ? probability - 1.0F : probability) * factor;
      }
      x.To(at + i);
    });
  }
};

}  // namespace equipoise::kernels
