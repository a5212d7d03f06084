#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

struct EmbeddingOptions {
  // Ranks over which the weight's rows are split; the result is whole on each. Null: not split.
  Communicator* group = nullptr;
  // The token whose row gets no gradient here, as padding_idx of torch.nn.Embedding; -1: none.
  int64_t padding_id = -1;
  // Whether each of these ranks gets its part of the result's rows alone (shared_rows.h).
  bool shares_rows = false;
};

// Embedding of ids [tokens] -> [tokens, hidden]: rows of `weight` [vocabulary, hidden], except that
// those at `positions` [n] are `features` [n, hidden], in order. `features` may be undefined.
at::Tensor EmbedAndSplice(const at::Tensor& ids, const at::Tensor& features,
                          const at::Tensor& positions, Parameter& weight,
                          const EmbeddingOptions& options = {});

// Class token and positions of patches [tiles, patches, hidden] -> [tiles, rows, hidden]: `token`
// (hidden elements; null: none, rows = patches) is prepended, so that rows = patches + 1, then
// `positions` (rows * hidden elements) are added.
at::Tensor AddClassAndPositions(const at::Tensor& patches, Parameter* token, Parameter& positions);

// x [n, hidden] with `vector` (hidden elements) in the place of its rows `places` [m]. What they
// held gets no gradient.
at::Tensor PutVector(const at::Tensor& x, const at::Tensor& places, Parameter& vector);

}  // namespace equipoise::ops
