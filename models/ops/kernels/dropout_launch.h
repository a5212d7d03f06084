#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "models/ops/kernels/dropout_rows.h"
#include "parallel/kernels/launchers.h"

namespace equipoise::ops {

// Which elements of a tensor's rows are dropped: a share `p`, by a hash of the key and their row
// and column in the whole tensor.
struct DropoutMask {
  double p = 0;
  uint64_t key = 0;
  int64_t first_row = 0, first_column = 0;
};

// x [rows, n] in fp32, bf16 or fp16, with what the mask drops times 0 and the others times
// 1 / (1 - p) in x's type, by the row functions of dropout_rows.h and a launcher
// (parallel/kernels/launchers.h).
template <class Launcher>
at::Tensor DroppedOn(const Launcher& launch, const at::Tensor& x, const DropoutMask& mask) {
  const at::Tensor input = x.contiguous();
  at::Tensor y = at::empty(input.sizes(), input.options());
  const int64_t size = input.size(-1);
  const auto bound = static_cast<uint64_t>(std::llround(mask.p * 0x1p32));
  kernels::OnActivations(input, [&](auto type) {
    using T = decltype(type);
    T rounded;
    kernels::Store(static_cast<float>(1 / (1 - mask.p)), rounded);
    launch(kernels::DropoutRow<T>{kernels::Data<T>(input), kernels::MutableData<T>(y), size,
                                  mask.first_row, mask.first_column, mask.key, bound,
                                  kernels::Load(rounded), kernels::Packed(size, {input, y})},
           size == 0 ? 0 : input.numel() / size);
  });
  return y;
}

}  // namespace equipoise::ops
