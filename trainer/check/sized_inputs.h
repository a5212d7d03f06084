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
// each sample that has any; without it each is alone. Everything throws DataError that names the
// file and the tensor.
class SizedInputs {
 public:
  SizedInputs(const SafetensorsReader& file, const ModelConfig& config);

  // Gives a row, whose tokens are set, the next pictures, for which it has tokens. `row` is for
  // messages.
  void AddTo(int64_t row, MicroBatch* batch);
  // The number of pictures whose tokens begin in a segment of the row added last.
  int64_t PicturesIn(int64_t begin, int64_t end) const;
  // Pictures that no row had tokens for.
  int64_t left() const { return static_cast<int64_t>(sizes_.size() - next_); }

 private:
  [[noreturn]] void Refuse(const std::string& tensor, const std::string& what) const;
  void ReadSizes(const SafetensorsReader& file);
  // Puts squares in the place of the sizes of pictures that are not alone.
  void ReadCounts(const SafetensorsReader& file);
  // Makes pixel_values [tiles, 3, side, side]; `tiles` of each picture.
  void ReadPixels(const SafetensorsReader& file, const std::vector<int64_t>& tiles);

  const int64_t image_token_, video_token_;
  const ImageSpec images_;
  const std::string path_;
  std::vector<PatchGrid> sizes_;
  at::Tensor pixels_;            // undefined where the file has none
  std::vector<int64_t> begins_;  // tokens of the row added last at which pictures begin
  size_t next_ = 0;              // of sizes_
  int64_t next_tile_ = 0;
};

}  // namespace equipoise
