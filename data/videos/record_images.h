#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <vector>

#include "data/images/image_size.h"
#include "data/text/conversation.h"
#include "data/videos/video_file.h"

namespace equipoise {

// Decoder of a record's pictures and of the frames of its videos. Of a video's file one frame at a
// time is in memory; ascending order is cheap.
class RecordImages {
 public:
  // `files`: of each of the record's images its bytes, of a video's file at its first frame alone,
  // as SampleScanner::Scan() gives them. What they point to must outlive it.
  RecordImages(const Record& record, std::vector<std::string_view> files, const ImageLimits& limits)
      : record_(record), files_(std::move(files)), limits_(limits) {}

  // By the head, without decoding. Throws ImageError.
  ImageSize SizeOf(size_t image) const;
  // [height, width, 3] uint8. Throws ImageError.
  at::Tensor Decode(size_t image);

 private:
  const Record& record_;
  std::vector<std::string_view> files_;
  ImageLimits limits_;
  size_t opened_ = 0;  // place of the first frame of video_
  std::unique_ptr<VideoFile> video_;
};

}  // namespace equipoise
