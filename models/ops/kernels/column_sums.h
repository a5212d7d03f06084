#pragma once

#include <cstdint>

#include "parallel/kernels/row_team.h"

namespace equipoise::kernels {

// Sums over the rows of matrices [rows, columns], as gradients of biases, of layer scale and of
// norms' weights are: rows are cut into chunks, and a team adds up the rows of a chunk in some
// neighbouring columns, in fp32, in an order that the sizes alone fix. Each matrix is read once.
constexpr int64_t kChunkRows = 128;
constexpr int64_t kColumnLanes = 32;  // threads beside each other; the others take other rows

template <class T>
constexpr int64_t kTeamColumns = kColumnLanes* kWidest<T>;

EQUIPOISE_DEVICE int64_t PartsOf(int64_t size, int64_t part) { return (size + part - 1) / part; }

// Of a gradient g and what its rows came of. Team i sums columns (i % groups) * kTeamColumns
// onwards of the rows from (i / groups) * kChunkRows on, of groups of kTeamColumns columns. All
// matrices are contiguous by rows but g. `packed`: all pointers are aligned to 16 bytes, `columns`
// and `stride` are multiples of a Pack's elements.
template <class T>
struct ColumnSumRow {
  const T* g;
  int64_t stride;     // of g's rows
  const T* x;         // factors of g; nullptr: 1
  const float* mean;  // [rows] of x, taken off before; nullptr: 0
  const float* rstd;  // [rows] times x; nullptr: 1
  float* sums;        // [chunks, columns] of g times its factors
  float* plain;       // [chunks, columns] of g itself; nullptr: not wanted
  int64_t rows, columns;
  bool packed;

  static constexpr int kPack = kWidest<T>;
  struct Shared {
    float numbers[kMostThreads * kPack];
  };

  template <int kSize, class Team>
  EQUIPOISE_DEVICE void Run(int64_t index, const Team& team) const {
    const int64_t groups = PartsOf(columns, kTeamColumns<T>), chunk = index / groups;
    const int64_t first_row = chunk * kChunkRows, first_column = index % groups * kTeamColumns<T>;
    const int64_t last_row = first_row + kChunkRows < rows ? first_row + kChunkRows : rows;
    const int64_t last_column =
        first_column + kTeamColumns<T> < columns ? first_column + kTeamColumns<T> : columns;
    const int64_t lanes = kColumnLanes < team.threads ? kColumnLanes : team.threads;
    const int64_t lines = team.threads / lanes, line = team.thread / lanes;
    for (int64_t begin = first_column; begin < last_column; begin += lanes * kSize) {
      const int64_t column = begin + team.thread % lanes * kSize;
      Lanes<kSize> sum = {}, of_g = {};
      if (column < last_column) {
        const T* from = g + (first_row + line) * stride + column;
        EQUIPOISE_UNROLL(2)
        for (int64_t row = first_row + line; row < last_row; row += lines, from += lines * stride) {
          const auto term = Lanes<kSize>::From(from);
          if (plain != nullptr) {
            for (int j = 0; j < kSize; ++j) of_g.at[j] += term.at[j];
          }
          if (x == nullptr) {
            for (int j = 0; j < kSize; ++j) sum.at[j] += term.at[j];
            continue;
          }
          const auto factor = Lanes<kSize>::From(x + row * columns + column);
          const float shift = mean == nullptr ? 0 : mean[row];
          const float scale = rstd == nullptr ? 1 : rstd[row];
          for (int j = 0; j < kSize; ++j)
            sum.at[j] += term.at[j] * ((factor.at[j] - shift) * scale);
        }
      }
      const bool writes = line == 0 && column < last_column;
      const int64_t to = chunk * columns + column;
      Share(sum, team);
      if (writes) Total<kSize>(lanes, team).To(sums + to);
      team.Wait();
      if (plain == nullptr) continue;
      Share(of_g, team);
      if (writes) Total<kSize>(lanes, team).To(plain + to);
      team.Wait();
    }
  }

 private:
  // Shares a thread's sums with its team.
  template <int kSize, class Team>
  EQUIPOISE_DEVICE static void Share(const Lanes<kSize>& mine, const Team& team) {
    float* numbers = team.shared.numbers + team.thread * kSize;
    for (int j = 0; j < kSize; ++j) numbers[j] = mine.at[j];
    team.Wait();
  }
  // The sums of all lines of this thread's columns.
  template <int kSize, class Team>
  EQUIPOISE_DEVICE static Lanes<kSize> Total(int64_t lanes, const Team& team) {
    Lanes<kSize> total = {};
    for (int64_t thread = team.thread; thread < team.threads; thread += lanes) {
      for (int j = 0; j < kSize; ++j) total.at[j] += team.shared.numbers[thread * kSize + j];
    }
    return total;
  }
};

}  // namespace equipoise::kernels
