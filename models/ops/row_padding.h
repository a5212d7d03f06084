#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace equipoise::ops {

// The CPU's 16-bit matrix products are compiled for each number of rows that they meet, most of a
// megabyte each, and kept. Packs have about as many rows each, never quite: rounding the rows up
// leaves a few numbers of them. Rows of zeros add nothing to a sum over rows, and their own
// results are cut off.

// `rows` rounded up: to a multiple of 16, to one of 8 numbers between a power of two and the next
// from 128 on, of 16 from 1024 on. Fewer than 16 stay as they are.
int64_t PaddedRows(int64_t rows);

// x [rows, n] as `dtype`, with rows of zeros up to PaddedRows(rows) where `dtype` is a 16-bit one
// and x is on the CPU; x itself where there is nothing to do.
at::Tensor PadRows(const at::Tensor& x, at::ScalarType dtype);

}  // namespace equipoise::ops
