#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/ops/linear.h"
#include "models/spec/tensor_parallel.h"

namespace equipoise {

// Column- and row-parallel linear layers (Megatron-LM), which Layer makes. A layer need not know of
// tensor parallelism: ColumnLinears, elementwise work or attention over whole heads, and RowLinear
// follow each other; the input of the first and the output of the last are whole and equal on every
// rank.
//
// Replicated parameters need no reduction of gradients: ColumnLinears sum the gradient of their
// input over the ranks, so everything before them gets whole gradients; RowLinear adds its bias
// after the sum over the ranks, so the bias and everything after it do, too.

// Linear layers that share their input [..., in]; outputs are concatenated [..., sum of out]. A
// rank has a share of each one's outputs.
class ColumnLinears {
 public:
  at::Tensor operator()(const at::Tensor& x) const;
  // Outputs of each linear on this rank.
  const std::vector<int64_t>& widths() const { return widths_; }

 private:
  friend class Layer;
  at::Tensor Shared(const at::Tensor& x) const;

  std::vector<ops::LinearWeights> own_;     // shares that only this rank holds
  std::vector<ops::LinearWeights> shared_;  // the last ones: key and value heads on several ranks
  Share share_;                             // of shared_
  std::vector<int64_t> widths_;
  Communicator* group_ = nullptr;
};

// A linear layer [..., in] -> [..., out]. A rank has a share of the inputs.
class RowLinear {
 public:
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  friend class Layer;
  ops::LinearWeights weights_;
  Communicator* group_ = nullptr;
};

}  // namespace equipoise
