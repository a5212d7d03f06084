#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/ops/linear.h"
#include "models/spec/tensor_parallel.h"

namespace equipoise {

// Linear layers as a layer calls them; Layer makes them. How they are split over the
// tensor-parallel ranks is known here and not to the layers: a column-parallel one, elementwise
// work or attention over whole heads, and a row-parallel one follow each other, and what goes in
// and comes out is whole and the same on every rank.
//
// Why replicated parameters have whole gradients, equal on all ranks, without any reduction:
// ColumnLinears sum the gradient of their input over the ranks, so everything before them sees a
// whole one; RowLinear adds its bias after the sum over the ranks, so that the bias and everything
// behind it see a whole one too.

// Linear layers that share their input [..., in]; results side by side [..., sum of out]. A rank
// has a share of each one's outputs.
class ColumnLinears {
 public:
  at::Tensor operator()(const at::Tensor& x) const;
  // Outputs of each linear on this rank.
  const std::vector<int64_t>& widths() const { return widths_; }

 private:
  friend class Layer;
  at::Tensor Shared(const at::Tensor& x) const;

  std::vector<ops::LinearWeights> own_;     // held by this rank alone
  std::vector<ops::LinearWeights> shared_;  // the last ones: key and value heads of several ranks
  Share share_;                             // of shared_
  std::vector<int64_t> widths_;
  Communicator* group_ = nullptr;
};

// [..., in] -> [..., out]. A rank has a share of the inputs.
class RowLinear {
 public:
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  friend class Layer;
  ops::LinearWeights weights_;
  Communicator* group_ = nullptr;
};

}  // namespace equipoise
