#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/micro_batch.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Cosines and sines of a model's rotary position embedding (RoPE), computed once for each
// micro-batch and shared by the layers. Not thread-safe.
class RotaryTable {
 public:
  explicit RotaryTable(const TextConfig& config);

  struct Angles {
    at::Tensor cos, sin;  // [tokens, head_dim / 2] fp32
  };
  // Cosines and sines for the micro-batch's positions. With multimodal ones each pair of a head's
  // elements turns by the time, the row or the column, as mrope_section says. "dynamic" scaling
  // (NTK-aware) lowers the frequencies of a segment that is longer than the model's positions; the
  // tokens of a KV cache count as part of the segment.
  const Angles& At(const MicroBatch& batch);

  // Frequencies [head_dim / 2] fp32, one for each pair of a head's elements, for sequences within
  // the model's positions.
  const at::Tensor& frequencies() const { return frequencies_; }

 private:
  // Angles [tokens, head_dim / 2] of positions in a sequence of `length` tokens.
  at::Tensor AnglesOf(const at::Tensor& position_ids, int64_t length);
  // The same of multimodal positions [3, tokens].
  at::Tensor GridAngles(const at::Tensor& position_ids);

  const TextConfig config_;
  at::Tensor frequencies_;
  at::Tensor position_ids_;  // of angles_; held, so that no other tensor can have its identity
  Angles angles_;
};

}  // namespace equipoise
