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
// columns of patches), the same of videos, of any times, in pixel_values_videos and video_grid_thw,
// second_per_grid_ts [videos] fp32 (1 where it is absent, as to Transformers' model),
// position_ids [3, B, T]. Everything throws DataError that names the file and
// the tensor.
class GridInputs {
 public:
  GridInputs(const SafetensorsReader& file, const ModelConfig& config);

  // Gives a row, whose tokens and segments are set, the next pictures, for which it has tokens, and
  // its positions: columns [first, first + tokens) of row `row` of position_ids, or where the file
  // has none those of Transformers' get_rope_index, beginning anew in each segment.
  void AddTo(int64_t row, int64_t first, MicroBatch* batch);
  // The number of pictures whose tokens begin in a segment of the row added last; of videos none.
  int64_t PicturesIn(int64_t begin, int64_t end) const;
  // Throws for pictures and videos that no row had tokens for.
  void Finish() const;

 private:
  // Pictures, or videos: those of a model whose times stand apart in the text are one for each
  // time.
  struct Stack {
    const char *pixels_name, *grids_name, *word;
    int64_t token;
    at::Tensor pixels;  // undefined where the file has none
    std::vector<PatchGrid> grids;
    size_t next = 0;         // of grids
    int64_t next_patch = 0;  // of pixels
  };
  // What begins at a token of the row added last.
  struct Begin {
    int64_t token;
    bool video;
  };

  [[noreturn]] void Refuse(const std::string& tensor, const std::string& what) const;
  void Read(const SafetensorsReader& file, Stack& stack) const;
  void ReadGrids(const SafetensorsReader& file, Stack& stack) const;
  // The next of a stack, for the tokens from `begin` on of row `row`.
  PatchGrid Take(Stack& stack, const MicroBatch& batch, int64_t begin, int64_t row) const;
  at::Tensor PositionsOf(const MicroBatch& batch, const std::vector<PatchGrid>& grids) const;

  const ModelConfig& config_;
  const ImageSpec images_;
  const std::string path_;
  Stack pictures_, videos_;
  at::Tensor positions_;       // undefined where the file has none
  std::vector<Begin> begins_;  // of the row added last
};

}  // namespace equipoise
