#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace equipoise::ops {

// What a mask of dropout is drawn from: nothing else, so that it is the same on every mesh, and
// when a layer is run again in backward.
struct DropoutKey {
  uint64_t noise = 0;  // of step and micro-batch
  std::string name;    // of the place in the model
  // In the whole tensor, of a rank that has some of its columns, or some of its rows.
  int64_t first_column = 0, first_row = 0;
};

// x [..., n] with a share `p` of its elements set to 0 and the others divided by 1 - p. The mask is
// a hash of the key, the row and the column; backward draws it again. REQUIRES: 0 <= p < 1.
at::Tensor Dropout(const at::Tensor& x, double p, const DropoutKey& key);

// x [samples, ...] with a share `p` of its samples set to 0 and the others divided by 1 - p
// (stochastic depth, arXiv 1603.09382). Which ones is a hash of the key and the sample's number; no
// place in the key counts. REQUIRES: 0 <= p < 1.
at::Tensor DropPath(const at::Tensor& x, double p, const DropoutKey& key);

}  // namespace equipoise::ops
