#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise::ops {

// Exchanges of context parallelism by heads (DeepSpeed-Ulysses, arXiv 2309.14509, section 3.1):
// context ranks share out the rows of a micro-batch, RowShare(rows, ranks) each (models/spec/
// tensor_parallel.h), of which the last may be padding. For attention each rank gets all rows of
// some heads, and gives them back. Every rank calls the same functions in the same order; backward
// then exchanges in the same order too (tensor_ranks.h).

// A range of the columns of a tensor.
struct Columns {
  int64_t begin = 0, size = 0;
};
// The columns that a rank gets, in this order.
using ColumnRanges = std::vector<Columns>;

// All rows [rows, own] of this rank's columns, from each rank's rows [share, width]. `of_ranks`:
// the columns of each rank; several may get the same ones, whose gradients are summed in fp32 then.
at::Tensor RowsToColumns(const at::Tensor& part, int64_t rows,
                         const std::vector<ColumnRanges>& of_ranks, Communicator& group);
// This rank's rows [share, width] of all columns, from each rank's columns [rows, own]; zeros
// behind the last row. REQUIRES: each column is of one rank.
at::Tensor ColumnsToRows(const at::Tensor& x, const std::vector<ColumnRanges>& of_ranks,
                         Communicator& group);

// Rows that go to other ranks: of x [n, width] the first sent[0] to rank 0, the next sent[1] to
// rank 1, and so on; what is left goes nowhere, and its gradient is zero. Returns those from all
// ranks [sum of received, width], in rank order.
at::Tensor SendRows(const at::Tensor& x, const std::vector<int64_t>& sent,
                    const std::vector<int64_t>& received, Communicator& group);

}  // namespace equipoise::ops
