#include "models/ops/row_padding.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>

namespace equipoise::ops {

int64_t PaddedRows(int64_t rows) {
  constexpr int64_t kLeast = 16;  // rows of the CPU's matrix units
  if (rows < kLeast) return rows;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
  const int64_t unit = std::max(kLeast, below / 64);
  return (rows + unit - 1) / unit * unit;
}

at::Tensor PadRows(const at::Tensor& x, at::ScalarType dtype) {
  const int64_t rows = x.size(0), padded = PaddedRows(rows);
  const bool compiled_for_rows = x.is_cpu() && c10::elementSize(dtype) == 2;
  if (!compiled_for_rows || padded == rows) return x.to(dtype);
  at::Tensor result = at::empty({padded, x.size(1)}, x.options().dtype(dtype));
  result.narrow(0, 0, rows).copy_(x);
  result.narrow(0, rows, padded - rows).zero_();
  return result;
}

}  // namespace equipoise::ops
