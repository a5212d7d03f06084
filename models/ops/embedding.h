#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// ids [tokens] -> [tokens, hidden]: the rows of `weight` [vocabulary, hidden], where the rows at
// `positions` [n] are replaced by `features` [n, hidden] in order. Undefined features = none.
// With a group, the weight's rows are split over its ranks; the result is whole on each.
at::Tensor EmbedAndSplice(const at::Tensor& ids, const at::Tensor& features,
                          const at::Tensor& positions, Parameter& weight,
                          Communicator* group = nullptr);

// patches [tiles, patches, hidden] -> [tiles, patches + 1, hidden]: the class token `token`
// [1, 1, hidden] goes first, then `positions` [1, patches + 1, hidden] are added.
at::Tensor AddClassAndPositions(const at::Tensor& patches, Parameter& token, Parameter& positions);

}  // namespace equipoise::ops
