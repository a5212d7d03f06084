#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "models/ops/record.h"
#include "models/ops/tensor_ranks.h"
#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"

namespace equipoise::ops {

// Exchanges of sequence parallelism (Korthikanti et al., arXiv 2205.05198, section 4.2.2): tensor
// ranks share out the rows of x [rows, n] between split linear layers. A rank has RowShare(rows,
// ranks) of them (models/spec/tensor_parallel.h), [share, n]; what lies behind the last of all rows
// is padding, which no other row sees and whose gradient is zero. Sums are those of tensor_ranks.h,
// and so are their bits.

// x [n, width] with rows of zeros up to `rows`, contiguous; x itself where it has them.
at::Tensor PadToRows(const at::Tensor& x, int64_t rows);
// All rows [rows, n] of each rank's part. Has no gradient.
at::Tensor Gathered(const at::Tensor& part, int64_t rows, Communicator& group);
// This rank's part of the sum of x [rows, n] over the ranks; `beside` is computed meanwhile. Has no
// gradient.
at::Tensor Scattered(const at::Tensor& x, Communicator& group, const BesideSum& beside = nullptr);

// Gathered(); backward sums the gradient over the ranks and scatters it, and computes what is in
// `beside` meanwhile.
at::Tensor GatherRows(const at::Tensor& part, int64_t rows, Communicator& group,
                      const BesideSum& beside = nullptr);
// Gathered(); backward takes this rank's rows of a gradient that is whole on every rank.
at::Tensor GatherWholeRows(const at::Tensor& part, int64_t rows, Communicator& group);
// Scattered(), plus `bias` [n] unless it is null; backward gathers the gradient. The bias's
// gradient is that of this rank's rows.
at::Tensor ScatterRows(const at::Tensor& x, Parameter* bias, Communicator& group);

// The input of linear layers of which a rank keeps its own rows alone, or the node that makes them
// again (KeptInPlaceOf()): those of the others are gathered again for the weights' gradients, once
// for all layers that share it.
class SharedInput {
 public:
  SharedInput(const at::Tensor& part, int64_t rows, Communicator& group)
      : maker_(KeptInPlaceOf(part)), rows_(rows), group_(group) {
    if (maker_ == nullptr) part_ = part.detach();
  }
  // Says that Take() will be called once more.
  void WillTake() { ++uses_; }
  // This rank's own rows; undefined before Restore() and behind the last call of Take().
  at::Tensor& part() { return part_; }
  // Makes this rank's own rows where they have not been kept. REQUIRES: the backward of what made
  // them has not run.
  void Restore();
  // Starts to gather what Take() waits for; nothing the second time.
  void Start();
  // All rows; nothing is held any more after the last call.
  at::Tensor Take();

 private:
  std::shared_ptr<ElementwiseNode> maker_;
  at::Tensor part_, all_;  // the latter padded, and on its way until `gather_` is done
  Work gather_;
  int64_t rows_;
  Communicator& group_;
  int uses_ = 0;
};

}  // namespace equipoise::ops
