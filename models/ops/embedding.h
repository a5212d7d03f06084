#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

struct EmbeddingOptions {
  // The weight's rows are split over its ranks; the result is whole on each. Null: not split.
  Communicator* group = nullptr;
  // The token whose row gets no gradient from here, as padding_idx of torch's Embedding; -1: none.
  int64_t padding_id = -1;
};

// ids [tokens] -> [tokens, hidden]: the rows of `weight` [vocabulary, hidden], where the rows at
// `positions` [n] are replaced by `features` [n, hidden] in order. Undefined features = none.
at::Tensor EmbedAndSplice(const at::Tensor& ids, const at::Tensor& features,
                          const at::Tensor& positions, Parameter& weight,
                          const EmbeddingOptions& options = {});

// patches [tiles, patches, hidden] -> [tiles, patches + 1, hidden]: the class token `token`
// [1, 1, hidden] goes first, then `positions` [1, patches + 1, hidden] are added.
at::Tensor AddClassAndPositions(const at::Tensor& patches, Parameter& token, Parameter& positions);

}  // namespace equipoise::ops
