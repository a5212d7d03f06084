#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/layers/micro_batch.h"
#include "models/spec/image_spec.h"
#include "models/spec/model_config.h"
#include "models/weights/safetensors.h"

namespace equipoise {

// The input tensors of `check` for a model that takes pictures as grids of patches: pixel_values
// [patches, numbers of a patch], image_grid_thw [pictures, 3] (times, which must be 1, rows and
// columns of patches), position_ids [3, B, T]. Everything throws DataError that names the file and
// the tensor.
class GridInputs {
 public:
  GridInputs(const SafetensorsReader& file, const ModelConfig& config);

  // Gives a row, whose tokens and segments are set, the next pictures, for which it has tokens, and
  // its positions: columns [first, first + tokens) of row `row` of position_ids, or where the file
  // has none those of Transformers' get_rope_index, beginning anew in each segment.
  void AddTo(int64_t row, int64_t first, MicroBatch* batch);
  // The number of pictures whose tokens begin in a segment of the row added last.
  int64_t PicturesIn(int64_t begin, int64_t end) const;
  // Pictures that no row had tokens for.
  int64_t left() const { return static_cast<int64_t>(grids_.size() - next_); }

 private:
  [[noreturn]] void Refuse(const std::string& tensor, const std::string& what) const;
  void ReadGrids(const SafetensorsReader& file);
  at::Tensor PositionsOf(const MicroBatch& batch, const std::vector<PatchGrid>& grids) const;

  const ModelConfig& config_;
  const ImageSpec images_;
  const std::string path_;
  std::vector<PatchGrid> grids_;
  at::Tensor pixels_, positions_;  // undefined where the file has none
  std::vector<int64_t> begins_;    // tokens of the row added last at which pictures begin
  size_t next_ = 0;                // of grids_
  int64_t next_patch_ = 0;
};

}  // namespace equipoise
