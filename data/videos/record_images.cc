#include "data/videos/record_images.h"

#include <ATen/ops/empty.h>

#include "configs/base/error.h"
#include "data/images/image.h"

namespace equipoise {

ImageSize RecordImages::SizeOf(size_t image) const {
  const FileFrame* frame = record_.FrameOfFile(image);
  if (frame != nullptr) return {frame->width, frame->height};
  return ImageSizeOf(files_[image], limits_);
}

at::Tensor RecordImages::Decode(size_t image) {
  const FileFrame* frame = record_.FrameOfFile(image);
  if (frame == nullptr) return DecodeImage(files_[image], limits_);
  size_t first = image;
  while (first > 0 && files_[first].empty()) --first;
  if (video_ == nullptr || opened_ != first) {
    video_ = OpenVideo(files_[first], limits_);
    opened_ = first;
  }
  EQUIPOISE_CHECK(video_->size() == SizeOf(image), "a video's size");
  at::Tensor rgb = at::empty({frame->height, frame->width, 3}, at::kByte);
  video_->Decode(frame->number, rgb.mutable_data_ptr<uint8_t>());
  return rgb;
}

}  // namespace equipoise
