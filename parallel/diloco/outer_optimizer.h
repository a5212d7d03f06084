#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/comm/communicator.h"
#include "parallel/zero/zero_optimizer.h"

namespace equipoise {

// Hyperparameters of the outer optimizer; the paper's.
struct OuterOptions {
  double lr = 0.7;
  double momentum = 0.9;
  // In which islands send what their weights have moved by: fp32, or bf16, whose sum is rounded
  // once on CPUs, and by each island that it passes on GPUs.
  at::ScalarType reduce_dtype = at::kFloat;
};

// The outer optimizer of DiLoCo (Douillard et al., arXiv 2311.08105, algorithm 1), of one rank's
// share of the weights. Several models, one on each island of ranks, begin a round with the same
// weights, take steps of their own inner optimizers on samples of their own, and meet at its end:
//
//   d = w - mean of the models' weights      m = momentum * m + d
//   w -= lr * (d + momentum * m)             (SGD with Nesterov's momentum, as torch.optim.SGD)
//
// where w are the weights that the round began with. All models go on from w; their inner
// optimizers keep their moments. Islands communicate in Step() alone. w and m are in fp32, in host
// memory, laid out as the inner optimizer's share. Step() is collective over the ranks of all
// islands, SetModel() over those of one. Not thread-safe.
class OuterOptimizer {
 public:
  // `islands`: the ranks that have this rank's place on each island; null: there is one island.
  // Both must outlive it.
  OuterOptimizer(ZeroOptimizer& inner, Communicator* islands, const OuterOptions& options);

  // Begins the first round with the model's weights. REQUIRES: the inner optimizer's masters.
  void Begin();
  // Ends a round, and begins the next one.
  void Step();
  // Gives the model weights, [inner.share_numel()], to go on with in a round of which the state
  // below was read from a checkpoint.
  void SetModel(const at::Tensor& weights);

  // [inner.share_numel()] each, to read and write: w; m, undefined where there is no momentum.
  at::Tensor weights() { return weights_; }
  at::Tensor momentum() { return momentum_; }

 private:
  ZeroOptimizer& inner_;
  Communicator* islands_;
  OuterOptions options_;
  at::Tensor weights_, momentum_;
};

}  // namespace equipoise
