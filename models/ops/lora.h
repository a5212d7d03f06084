#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"

namespace equipoise::ops {

// The second half of low-rank adapters (LoRA; models/spec/lora.h): u = x A' is a Linear().

// B of one adapter, and the columns that it adds to.
struct LowRankPart {
  Parameter* b = nullptr;  // [width, rank]
  int64_t begin = 0;       // first column of the result
};

// y [..., n] plus, in the columns of each part, scale * u B', where u [..., sum of ranks] holds the
// parts one after the other. Reuses the memory of y, which nothing else may use.
at::Tensor AddLowRank(const at::Tensor& y, const at::Tensor& u,
                      const std::vector<LowRankPart>& parts, double scale);

// Returns u; backward passes on its gradient, or zeros unless `passes`: then another rank passes on
// the same.
at::Tensor PassGradientIf(bool passes, const at::Tensor& u);

}  // namespace equipoise::ops
