#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "configs/base/error.h"
#include "models/ops/row_kernels.h"
#include "parallel/intra_op.h"

namespace equipoise::ops {

// Calls row kernels with a tensor's element type, over all threads.

template <class T>
const T* Data(const at::Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}
template <class T>
T* MutableData(at::Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

// Calls run(T(), rows) with T = float, Bf16 or Fp16, by x's dtype.
template <class Run>
void OnType(const at::Tensor& x, const Rows& rows, const Run& run) {
  EQUIPOISE_CHECK(x.is_cpu(), "row kernels run on the CPU");
  if (x.scalar_type() == at::kFloat) {
    run(float(), rows);
  } else if (x.scalar_type() == at::kHalf) {
    run(Fp16(), rows);
  } else {
    EQUIPOISE_CHECK(x.scalar_type() == at::kBFloat16, "no row kernel for ", x.scalar_type());
    run(Bf16(), rows);
  }
}

// Whether x is of those that On16Bits() takes.
inline bool Has16Bits(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf);
}

// Calls run(T()) with T = Bf16 or Fp16, by x's dtype. REQUIRES: Has16Bits().
template <class Run>
void On16Bits(const at::Tensor& x, const Run& run) {
  if (x.scalar_type() == at::kHalf) return run(Fp16());
  run(Bf16());
}

// Calls run(first row, last row) for ranges of `rows` rows of `size` elements, one for each thread.
template <class Run>
void ForRows(int64_t rows, int64_t size, const Run& run) {
  constexpr int64_t kElementsPerThread = 1 << 15;
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, size));
  IntraOpFor(0, rows, grain, run);
}

// Calls run(first column, last column) for ranges of `columns` columns, one for each thread: sums
// over rows then do not depend on their number.
template <class Run>
void ForColumns(int64_t columns, const Run& run) {
  constexpr int64_t kColumnsPerThread = 256;
  IntraOpFor(0, columns, kColumnsPerThread, run);
}

// Calls run(T(), rows) for ranges of the rows of x [rows, size], one for each thread. REQUIRES: a
// last stride of 1.
template <class Run>
void OnRows(const at::Tensor& x, const Run& run) {
  ForRows(x.size(0), x.size(1), [&](int64_t begin, int64_t end) {
    OnType(x, {begin, end, x.size(1), x.stride(0)}, run);
  });
}

// A tensor's elements as rows of its last dimension, contiguous.
inline at::Tensor ContiguousRows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)}).contiguous();
}

}  // namespace equipoise::ops
