#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/settings/loss_weight.h"
#include "models/layers/micro_batch.h"
#include "models/spec/model_config.h"

namespace equipoise {

// The input tensors of `check`, as micro-batches: one for each row of input_ids.
struct CheckInputs {
  struct Row {
    MicroBatch batch;
    int64_t first_column = 0;  // column of its first token; columns before it are masked
  };
  std::vector<Row> rows;
  int64_t columns = 0;
  bool has_labels = false;
  double total_weight = 0;  // weight of all targets, by which the sum of token losses is divided
};

// Reads a safetensors file with input_ids [B, T] and, optionally, labels [B, T] (not shifted, -100
// is ignored), attention_mask [B, T] (padding at the ends of rows only), position_ids [B, T],
// cu_seqlens [n + 1] (B = 1), pixel_values [tiles, 3, size, size], images_per_sample [n]; for
// models that take grids of patches as in grid_inputs.h. `weighting`: train.loss. Throws DataError
// that names the file and the tensor.
CheckInputs ReadCheckInputs(const std::string& path, const ModelConfig& config,
                            LossWeight weighting);

}  // namespace equipoise
