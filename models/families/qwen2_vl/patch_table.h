#pragma once

#include <ATen/core/Tensor.h>

#include "models/families/qwen2_vl/patch_layout.h"
#include "models/layers/micro_batch.h"
#include "models/ops/interpolated_positions.h"
#include "models/spec/model_config.h"

namespace equipoise {

// What the encoder's layers need to know of a micro-batch's pictures, computed once for each
// micro-batch and shared by the layers. Not thread-safe.
class PatchTable {
 public:
  explicit PatchTable(const ModelConfig& config);

  struct Entry {
    PatchLayout layout;
    // On the device. The square computed at each place, the place of each square; undefined where
    // squares are computed as they come.
    at::Tensor order, places;
    at::Tensor cos, sin;  // [patches, head_dim / 2] fp32 of the rotary positions: rows, columns
    ops::Interpolation positions;  // of the patches, where the encoder learns positions
  };
  // REQUIRES: the micro-batch has pictures.
  const Entry& At(const MicroBatch& batch, at::Device device);

 private:
  const ImageSpec images_;
  const int64_t side_;      // of the square of learned positions; 0: none
  at::Tensor frequencies_;  // [head_dim / 4] fp32
  at::Tensor image_grids_;  // of entry_; held, so that no other tensor can have its identity
  Entry entry_;
};

}  // namespace equipoise
