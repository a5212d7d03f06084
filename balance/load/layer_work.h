#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/model_config.h"

namespace equipoise {

// A number for a micro-batch: linear in its tiles, tokens, and tokens with a target.
struct PerRow {
  double per_tile = 0, per_token = 0, per_target = 0;

  double At(const LayerLoad& load) const {
    return per_tile * static_cast<double>(load.tiles) +
           per_token * static_cast<double>(load.tokens) +
           per_target * static_cast<double>(load.targets);
  }
};

// A matrix product of the forward pass: rows x n x k.
struct Product {
  PerRow rows;
  int64_t n = 0, k = 0;
};

// A sum over the tensor-parallel ranks.
struct TensorSum {
  PerRow elements;
  bool fp32 = false;  // whatever the precision of the computation
};

// What half a layer (attention or MLP; layers of one piece are all MLP) computes and keeps on one
// of the tensor-parallel ranks. Elements are those of activations unless said otherwise.
struct HalfWork {
  std::vector<Product> products;
  // Attention: FLOPs of the forward pass, by tile (every row of it sees every other) and by causal
  // pair.
  double attention_flops_per_tile = 0, attention_flops_per_pair = 0;
  PerRow passed;                               // elements that element-wise kernels read and write
  int kernels = 0;                             // launches beside those of products
  std::vector<TensorSum> sums, gradient_sums;  // of forward and of backward; none on one rank
  PerRow input;                                // what recomputation keeps: the half's input
  PerRow kept;                                 // beside it, for any gradient
  PerRow kept_weights;                         // beside both, where its weights are trained
  PerRow kept_fp32;        // of 4 bytes whatever the precision: statistics of norms and softmax
  PerRow work, work_fp32;  // beyond what is kept, at the worst moment of backward
};

struct LayerWork {
  HalfWork attention, mlp;
  int64_t parameters = 0;   // on this rank; a tied head's weight counts in the embedding alone
  bool has_halves = false;  // whether one half alone can be computed again
  bool has_input = true;    // false: what comes in is data, no gradient is wanted
  bool gradient_with_loss = false;  // the head: forward makes the gradients too
};

// Of a layer kind on one of `tensor` ranks; the one with the largest part where they are uneven.
LayerWork WorkOfLayer(const ModelConfig& config, LayerKind kind, int tensor);

}  // namespace equipoise
