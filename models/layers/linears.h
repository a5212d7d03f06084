#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/ops/linear.h"
#include "models/ops/lora.h"
#include "models/ops/magnitude.h"
#include "models/ops/shared_rows.h"
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
//
// With sequence parallelism (TensorParallel::sequence) a rank has some of the rows of what comes
// before the first and after the last (models/ops/shared_rows.h): the sums become gathers and
// scatters, and parameters that work on these rows have partial gradients (Layer::partial()).

// Low-rank adapters (models/spec/lora.h) of linear layers that share their input. A is split by its
// inputs where the linear layers are, B by its outputs where they are, so that each factor is split
// or whole as the linear layer's other side is. The sums over ranks are of `rank` numbers a row: of
// x A' forwards where A is split, of its gradient where B is.
struct Adapters {
  // Of linear layers whose results are neighbours.
  struct Group {
    std::vector<ops::LowRankPart> parts;         // B's
    std::vector<ops::MagnitudePart> magnitudes;  // DoRA
    int64_t rank = 0;                            // sum over the parts
  };

  // The input of linear layers; what they keep of it, null: all of it; and what runs beside the sum
  // of its gradient.
  struct Input {
    at::Tensor x;
    std::shared_ptr<ops::SharedInput> kept = nullptr;
    ops::BesideSum beside = nullptr;
  };

  bool empty() const { return down.empty(); }
  // x A' of all adapters [..., sum of ranks], of this rank's part of the inputs. Under training
  // with dropout, elements of x are left out at random, the same ones for all of these adapters.
  // `first_row`: of x, among the rows [`rows`, ...] of this context rank.
  at::Tensor Down(const at::Tensor& x, int64_t rows, int64_t first_row = 0) const;
  // x W' and the adapters' part of it, u = Down(x); `across`: the ranks that share the inputs. The
  // result is this rank's, summed over them; of its rows, where `scatters` says so.
  at::Tensor Run(const Input& input, const at::Tensor& u,
                 const std::vector<ops::LinearWeights>& linears, const Group& group,
                 Communicator* across) const;

  std::vector<ops::LinearWeights> down;  // A's, those of `own` first
  Group own, shared;
  double scale = 1, dropout = 0;
  bool scatters = false;  // ranks that share the inputs share out the rows of the result
  int context_rank = 0;
  const uint64_t* noise = nullptr;  // the layer's, see Layer::noise
};

// Linear layers that share their input [..., in]; outputs are concatenated [..., sum of out]. A
// rank has a share of each one's outputs. With sequence parallelism x is [share of rows, in] and
// the result has all `rows`.
class ColumnLinears {
 public:
  at::Tensor operator()(const at::Tensor& x, int64_t rows = 0) const;
  // Outputs of each linear on this rank.
  const std::vector<int64_t>& widths() const { return widths_; }

 private:
  friend class Layer;
  at::Tensor OnRows(const at::Tensor& x, int64_t rows) const;
  at::Tensor Products(const Adapters::Input& input, const at::Tensor& u) const;
  at::Tensor Shared(const Adapters::Input& input, const at::Tensor& u) const;

  std::vector<ops::LinearWeights> own_;     // shares that only this rank holds
  std::vector<ops::LinearWeights> shared_;  // the last ones: key and value heads on several ranks
  Share share_;                             // of shared_
  std::vector<int64_t> widths_;
  Adapters adapters_;
  Communicator* group_ = nullptr;
  bool shares_rows_ = false;
};

// A linear layer [..., in] -> [..., out]. A rank has a share of the inputs and, with sequence
// parallelism, of the result's rows.
class RowLinear {
 public:
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  friend class Layer;
  ops::LinearWeights weights_;
  Adapters adapters_;
  Communicator* group_ = nullptr;
};

}  // namespace equipoise
