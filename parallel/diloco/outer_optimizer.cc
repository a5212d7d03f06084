#include "parallel/diloco/outer_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "configs/base/error.h"

namespace equipoise {

OuterOptimizer::OuterOptimizer(ZeroOptimizer& inner, Communicator* islands,
                               const OuterOptions& options)
    : inner_(inner), islands_(islands), options_(options) {}

void OuterOptimizer::Begin() {
  const int64_t numel = inner_.share_numel();
  weights_ = at::empty({numel}, at::kFloat);
  for (const Range& piece : inner_.PiecesOfShare())
    weights_.narrow(0, piece.begin, piece.size()).copy_(inner_.Masters(piece));
  if (options_.momentum != 0) momentum_ = at::zeros({numel}, at::kFloat);
}

void OuterOptimizer::Step() {
  EQUIPOISE_CHECK(weights_.defined(), "no round was begun");
  const int count = islands_ == nullptr ? 1 : islands_->size();
  inner_.SetMasters([&](Range share) {
    at::Tensor weights = weights_.narrow(0, share.begin, share.size());
    const at::Tensor masters = inner_.Masters(share);
    // From where the round began: what the rounding of weights without masters took away then is
    // still in `weights`, and comes to count when enough of it has gathered.
    at::Tensor moved = inner_.AsHeld(weights).to(masters.device()).sub(masters);
    if (count > 1) {
      at::Tensor sum = moved.to(options_.reduce_dtype);
      islands_->AllReduce(sum, ReduceOp::kSum).WaitOnStream();
      moved = sum.to(at::kFloat).div(count);
    }
    moved = moved.cpu();
    if (momentum_.defined()) {
      at::Tensor momentum = momentum_.narrow(0, share.begin, share.size());
      momentum.mul_(options_.momentum).add_(moved);
      moved.add_(momentum, options_.momentum);
    }
    return weights.sub_(moved, options_.lr);
  });
}

void OuterOptimizer::SetModel(const at::Tensor& weights) {
  EQUIPOISE_CHECK(weights.numel() == inner_.share_numel(), weights.numel(), " weights of ",
                  inner_.share_numel());
  inner_.SetMasters([&](Range share) { return weights.narrow(0, share.begin, share.size()); });
}

}  // namespace equipoise
