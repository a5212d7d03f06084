#pragma once

#include <cstdint>
#include <vector>

#include "models/spec/layer_load.h"

namespace equipoise {

// A quantity that is linear in the rows of a micro-batch, with a coefficient for each kind of row.
struct PerRow {
  double per_patch = 0, per_image_token = 0, per_token = 0, per_target = 0;

  static PerRow Patches(double number) { return {number, 0, 0, 0}; }
  static PerRow ImageTokens(double number) { return {0, number, 0, 0}; }
  static PerRow Tokens(double number) { return {0, 0, number, 0}; }
  static PerRow Targets(double number) { return {0, 0, 0, number}; }

  double At(const LayerLoad& load) const {
    return per_patch * static_cast<double>(load.patches) +
           per_image_token * static_cast<double>(load.image_tokens) +
           per_token * static_cast<double>(load.tokens) +
           per_target * static_cast<double>(load.targets);
  }
};

// A matrix product (GEMM) of the forward pass: [rows, k] by [k, n].
struct Product {
  PerRow rows;
  int64_t n = 0, k = 0;
};

// An all-reduce over the tensor-parallel ranks.
struct TensorAllReduce {
  PerRow elements;
  bool fp32 = false;  // in fp32, whatever the precision of the computation
  double fixed = 0;   // elements that do not depend on the micro-batch
};

// Work and saved activations of half a layer (attention or MLP; layers of one piece are all MLP) on
// one of the tensor-parallel ranks, the one with the largest part. Numbers are elements of
// activations unless said otherwise.
struct HalfCost {
  std::vector<Product> products;
  // FLOPs of attention's forward pass, by pair of the encoder's rows and by causal pair.
  double attention_flops_per_patch_pair = 0, attention_flops_per_pair = 0;
  PerRow elementwise;  // read and written by kernels other than matrix products
  int kernels = 0;     // launches of those kernels
  // All-reduces of forward and of backward; none on one rank.
  std::vector<TensorAllReduce> all_reduces, gradient_all_reduces;
  PerRow input;          // the half's input: all that is saved where the half is recomputed
  PerRow saved;          // saved in addition, for any gradient
  PerRow saved_weights;  // saved in addition where the half's weights are trained
  PerRow saved_fp32;     // saved in fp32 whatever the precision: statistics of norms and softmax
  PerRow workspace, workspace_fp32;  // peak of temporaries in backward, without what is saved

  double AttentionFlops(const LayerLoad& load) const {
    return attention_flops_per_patch_pair * load.patch_pairs +
           attention_flops_per_pair * load.token_pairs;
  }
};

}  // namespace equipoise
