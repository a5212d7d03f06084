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

// The input tensors of `check` for a model that takes pictures of any resolution
// (models/spec/any_resolution.h): image_sizes [pictures, 2], heights and widths in pixels, and
// pixel_values, of all pictures one after the other [tiles, 3, side, side], or as Transformers'
// processor makes them [pictures, tiles of the largest, 3, side, side]. Where several pictures are
// one square each (ImageSpec::lone_tiles), batch_num_images [samples] may be there, the pictures of
// each sample that has any; without it each is alone. Where the model takes videos,
// pixel_values_videos [videos, frames, 3, side, side], or of videos that differ in length
// [frames of all, 3, side, side] and frames_per_video [videos]. Everything throws DataError that
// names the file and the tensor.
class SizedInputs {
 public:
  SizedInputs(const SafetensorsReader& file, const ModelConfig& config);

  // Gives a row, whose tokens are set, the next pictures and videos, for which it has tokens. `row`
  // is for messages.
  void AddTo(int64_t row, MicroBatch* batch);
  // The number of pictures whose tokens begin in a segment of the row added last; of videos none.
  int64_t PicturesIn(int64_t begin, int64_t end) const;
  // Throws for pictures and videos that no row had tokens for.
  void Finish() const;

 private:
  // Pictures or videos.
  struct Stack {
    const char *name, *word,
        *token_word;  // tensor that says how many there are; "picture"; "image"
    int64_t token;    // -1: the model takes none
    std::vector<PatchGrid> sizes;
    at::Tensor pixels;      // [tiles, 3, side, side]; undefined where the file has none
    size_t next = 0;        // of sizes
    int64_t next_tile = 0;  // of pixels
  };

  [[noreturn]] void Refuse(const std::string& tensor, const std::string& what) const;
  void ReadSizes(const SafetensorsReader& file);
  // Puts squares in the place of the sizes of pictures that are not alone.
  void ReadCounts(const SafetensorsReader& file);
  // Makes the pixels [tiles, 3, side, side] of pictures.
  void ReadPixels(const SafetensorsReader& file);
  void ReadVideos(const SafetensorsReader& file);
  // The next of a stack, for which row `row` has tokens.
  PatchGrid Take(Stack& stack, int64_t row) const;

  const ImageSpec images_;
  const std::string path_;
  Stack pictures_, videos_;
  std::vector<int64_t> begins_;  // tokens of the row added last at which pictures begin
};

}  // namespace equipoise
