#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/spec/context_heads.h"
#include "parallel/comm/communicator.h"

namespace equipoise::ops {

// Exchanges of context parallelism by heads (DeepSpeed-Ulysses, arXiv 2309.14509, section 3.1):
// context ranks share out the rows of a micro-batch, RowShare(rows, ranks) each (models/spec/
// tensor_parallel.h), of which the last may be padding. For attention each rank gets some heads of
// all rows, or of some (models/spec/context_heads.h), and gives them back. Every rank calls the
// same functions in the same order; backward then exchanges in the same order too (tensor_ranks.h).

// What each rank has in attention, by rank: columns of a tensor, and rows of a micro-batch, in
// ascending order. Empty `rows`: all, on every rank.
struct AttentionParts {
  std::vector<Ranges> columns, rows;
};

// This rank's rows and columns [its rows, its columns], from each rank's rows [share, width].
// Several ranks may get the same elements, whose gradients are summed in fp32 then.
at::Tensor RowsToColumns(const at::Tensor& part, int64_t rows, const AttentionParts& parts,
                         Communicator& group);
// This rank's rows [share, width] of all columns, from each rank's parts; zeros behind the last
// row. REQUIRES: each element is of one rank.
at::Tensor ColumnsToRows(const at::Tensor& x, int64_t rows, const AttentionParts& parts,
                         Communicator& group);

// Rows of x [n, width], one range behind the other.
at::Tensor TakeRows(const at::Tensor& x, const Ranges& rows);

// Rows that go to other ranks: of x [n, width] the first sent[0] to rank 0, the next sent[1] to
// rank 1, and so on; what is left goes nowhere, and its gradient is zero. Returns those from all
// ranks [sum of received, width], in rank order.
at::Tensor SendRows(const at::Tensor& x, const std::vector<int64_t>& sent,
                    const std::vector<int64_t>& received, Communicator& group);

}  // namespace equipoise::ops
