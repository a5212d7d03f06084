#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/micro_batch.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Cosines and sines of a model's rotary embedding, shared by its layers: they are computed once for
// each micro-batch. Not thread-safe.
class RotaryTable {
 public:
  explicit RotaryTable(const TextConfig& config);

  struct Angles {
    at::Tensor cos, sin;  // [tokens, head_dim / 2] fp32
  };
  // Cosines and sines for the micro-batch's positions. With "dynamic" scaling (NTK-aware) the
  // frequencies of a segment that is longer than the model's positions are lower; of a row with a
  // KV cache, the tokens in it count.
  const Angles& At(const MicroBatch& batch);

  // One frequency for each pair of a head's elements, [head_dim / 2] fp32, of sequences within the
  // model's positions.
  const at::Tensor& frequencies() const { return frequencies_; }

 private:
  // Angles [tokens, head_dim / 2] of positions in a sequence of `length` tokens.
  at::Tensor AnglesOf(const at::Tensor& position_ids, int64_t length);

  const TextConfig config_;
  at::Tensor frequencies_;
  at::Tensor position_ids_;  // those of angles_: kept, so that no other tensor can take their place
  Angles angles_;
};

}  // namespace equipoise
