#pragma once

#include <cstddef>
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
  bool frozen = false;  // no gradient of the weight
};

// Kernels between matrix products, which are bound by memory. What they move for an element depends
// on the program (balance/costs/program.h).
enum class PassKind : uint8_t {
  kNorm,       // RMS norm
  kLayerNorm,  // LayerNorm with a bias
  kRotary,     // of each element of queries and keys
  kGatedUnit,  // SiLU(gate) * up, of each element of the result
  kGelu,
  kResidual,  // the sum of two activations
  kScale,     // times a trained vector
  kCopy,
  kEmbedding,  // rows taken from a table
  kLogits,     // softmax, loss and gradient of each logit
  kQueries,    // beside flash attention's products, of each element of queries
};
inline constexpr size_t kNumPassKinds = 11;

struct Pass {
  PassKind kind;
  PerRow elements;
  // Every tensor-parallel rank has all columns, unless the ranks share out the rows.
  bool whole = false;
};

// An all-reduce over the tensor-parallel ranks.
struct TensorAllReduce {
  PerRow elements;
  bool fp32 = false;       // in fp32, whatever the precision of the computation
  double fixed = 0;        // elements that do not depend on the micro-batch
  bool of_rows = false;    // not done where ranks share out rows; `row_exchanges` take its place
  bool of_shares = false;  // done only where ranks share out rows
};

// Work and saved activations of half a layer (attention or MLP; layers of one piece are all MLP) on
// one of the tensor-parallel ranks, the one with the largest part. Numbers are elements of
// activations unless said otherwise.
struct HalfCost {
  std::vector<Product> products;
  // FLOPs of attention's forward pass, by pair of the encoder's rows, by pair within its windows,
  // and by causal pair.
  double attention_flops_per_patch_pair = 0, attention_flops_per_window_pair = 0;
  double attention_flops_per_pair = 0;
  double attention_heads = 0;  // score elements of a pair
  PerRow keys_values;          // elements of keys and values that attention reads
  std::vector<Pass> passes;
  // All-reduces of forward and of backward; none on one rank.
  std::vector<TensorAllReduce> all_reduces, gradient_all_reduces;
  // Elements that are gathered or reduce-scattered, each half of an all-reduce, where the ranks
  // share out rows (sequence parallelism): in forward, in backward, and for the weights' gradients.
  std::vector<PerRow> row_exchanges, gradient_row_exchanges, weight_row_exchanges;
  PerRow input;          // the half's input: all that is saved where the half is recomputed
  PerRow saved;          // saved in addition, for any gradient
  PerRow saved_weights;  // saved in addition where the half's weights are trained
  PerRow saved_whole;    // part of these two that every tensor-parallel rank has
  // Of what is saved for weights, results of the norm before the products, which every
  // tensor-parallel rank has, and of the activation function: Recompute::kElementwise.
  PerRow norms, activations;
  PerRow saved_fp32;  // saved in fp32 whatever the precision: statistics of norms and softmax
  PerRow workspace, workspace_fp32;  // peak of temporaries in backward, without what is saved

  double AttentionFlops(const LayerLoad& load) const {
    return attention_flops_per_patch_pair * load.patch_pairs +
           attention_flops_per_window_pair * load.window_pairs +
           attention_flops_per_pair * load.token_pairs;
  }
};

}  // namespace equipoise
