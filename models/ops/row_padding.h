#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace equipoise::ops {

// Padding of rows for 16-bit matrix products on the CPU. Those are compiled (JIT) for each number
// of rows, and the kernels, of nearly a megabyte each, are cached. The numbers of rows of packs are
// close but not equal; rounding them up leaves few different ones. Rows of zeros add nothing to a
// sum over rows, and their own results are cut off.

// `rows` rounded up to a multiple of 16, from 1024 on to one of 64 numbers between successive
// powers of two. Fewer than 16 stay as they are.
int64_t PaddedRows(int64_t rows);

// x [rows, n] as `dtype`, with rows of zeros up to PaddedRows(rows) where `dtype` has 16 bits and x
// is on the CPU; x itself where nothing changes.
at::Tensor PadRows(const at::Tensor& x, at::ScalarType dtype);

}  // namespace equipoise::ops
