#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/model_config.h"

namespace equipoise {

enum class LayerKind {
  kPatchEmbedding,
  kVisionBlock,
  kProjector,
  kTokenEmbedding,
  kDecoderBlock,
  kHead,
};

// What a micro-batch asks of a layer.
struct LayerLoad {
  int64_t tiles = 0;
  int64_t tokens = 0;
  // (query, key) pairs of causal attention: the sum of n (n + 1) / 2 over segments of n tokens.
  double token_pairs = 0;
  int64_t targets = 0;  // tokens with a loss: the head works on them alone
};

// v tiles and t tokens in one segment, each with a target: the most that t tokens can cost.
LayerLoad SingleSegment(int64_t tiles, int64_t tokens);

// A layer of BuildLayers() without LibTorch: what it costs, for planning. FLOPs count matrix
// products (a multiplication and an addition are two); norms and activations are left out.
struct LayerSpec {
  LayerKind kind = LayerKind::kDecoderBlock;
  std::string name;        // as Layer::name()
  int64_t parameters = 0;  // a tied head's weight counts in the embedding alone

  double flops_per_tile = 0, flops_per_token = 0, flops_per_token_pair = 0, flops_per_target = 0;
  // Elements kept from forward to backward (a recomputed layer keeps its input alone).
  int64_t kept_per_tile = 0, kept_per_token = 0, kept_per_target = 0;
  // Elements of the output, which travel when the next layer is on another rank.
  int64_t output_per_tile = 0, output_per_token = 0;

  double ForwardFlops(const LayerLoad& load) const;
  // Input and weight gradients: twice forward. Causal attention makes its scores again: 2.5 times.
  double BackwardFlops(const LayerLoad& load) const;
  int64_t ActivationBytes(const LayerLoad& load, int64_t element_bytes) const;
  int64_t BoundaryBytes(const LayerLoad& load, int64_t element_bytes) const;
};

// The layers of a model, in order.
std::vector<LayerSpec> LayerSpecs(const ModelConfig& config);

}  // namespace equipoise
