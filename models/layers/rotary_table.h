#pragma once

#include <ATen/core/Tensor.h>

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
  // `position_ids` [tokens] int64.
  const Angles& At(const at::Tensor& position_ids);

  // One frequency for each pair of a head's elements, [head_dim / 2] fp32.
  const at::Tensor& frequencies() const { return frequencies_; }

 private:
  at::Tensor frequencies_;
  at::Tensor position_ids_;  // those of angles_: kept, so that no other tensor can take their place
  Angles angles_;
};

}  // namespace equipoise
