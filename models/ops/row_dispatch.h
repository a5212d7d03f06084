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

// Calls run() for ranges of the rows of x [rows, size], one for each thread. REQUIRES: a last
// stride of 1.
template <class Run>
void OnRows(const at::Tensor& x, const Run& run) {
  constexpr int64_t kElementsPerThread = 1 << 15;
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / x.size(1));
  IntraOpFor(0, x.size(0), grain, [&](int64_t begin, int64_t end) {
    OnType(x, {begin, end, x.size(1), x.stride(0)}, run);
  });
}

}  // namespace equipoise::ops
