#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/micro_batch.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Cosines and sines of a model's rotary position embedding (RoPE, arXiv 2104.09864), computed once
// for each micro-batch and shared by the layers. Scalings, TextConfig::rope_type, give the numbers
// of Transformers' modeling_rope_utils.py:
//   linear     every frequency over rope_factor: positions are interpolated (arXiv 2306.15595)
//   llama3     long wavelengths alone are stretched (LLaMA 3.1, arXiv 2407.21783)
//   yarn       frequencies between interpolated and kept ones, and larger scores (arXiv 2309.00071,
//              sections 3.2 to 3.4)
//   dynamic    lower frequencies (NTK-aware) for a segment that is longer than the model's
//              positions
//   longrope   each pair's own factor, of two lists by the segment's length (arXiv 2402.13753)
// A segment's length decides for the whole of it: tokens of a KV cache count, and ranks that share
// out its rows or heads have all of the micro-batch's segments before them, and decide alike.
// Not thread-safe.
class RotaryTable {
 public:
  explicit RotaryTable(const TextConfig& config);

  struct Angles {
    at::Tensor cos, sin;  // [tokens, rotary_dim / 2] fp32, times rope_attention_factor
  };
  // Cosines and sines for the micro-batch's positions. With multimodal ones each pair of a head's
  // elements turns by the time, the row or the column, as mrope_section says.
  const Angles& At(const MicroBatch& batch);

 private:
  // Frequencies [rotary_dim / 2] fp32, one for each pair of a head's elements, for a sequence of
  // `length` tokens.
  at::Tensor FrequenciesFor(int64_t length) const;
  // Angles [tokens, rotary_dim / 2] of positions in a sequence of `length` tokens.
  at::Tensor AnglesOf(const at::Tensor& position_ids, int64_t length);
  // The same of multimodal positions [3, tokens].
  at::Tensor GridAngles(const at::Tensor& position_ids);

  const TextConfig config_;
  at::Tensor frequencies_;       // for sequences within the model's positions
  at::Tensor long_frequencies_;  // of "longrope", for those beyond the original ones
  at::Tensor position_ids_;      // of angles_; held, so that no other tensor can have its identity
  Angles angles_;
};

}  // namespace equipoise
