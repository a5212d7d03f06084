#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "data/images/image_size.h"

namespace equipoise {

// A video's file, in a program that links what opens it (ffmpeg_video.cc). Not thread-safe; several
// objects are independent.
class VideoFile {
 public:
  virtual ~VideoFile() = default;

  // Decodes frame `number`, from 0 in the order in which frames are shown, into `rgb`: rows of 3 *
  // width bytes from top to bottom without gaps, turned upright. Cheap in ascending order; a step
  // back begins at the file's start. Throws ImageError for a frame that is damaged, or needs one
  // that is.
  virtual void Decode(int64_t number, uint8_t* rgb) = 0;

  int64_t frames() const { return frames_; }
  // Frames a second, on average; 0: the file does not tell.
  double fps() const { return fps_; }
  // Of each frame, upright.
  ImageSize size() const { return size_; }

 protected:
  int64_t frames_ = 0;
  double fps_ = 0;
  ImageSize size_;
};

// A video whose frames have more pixels than the limits allow.
class VideoTooLarge : public ImageError {
 public:
  using ImageError::ImageError;
};

// Whether this program opens videos.
bool OpensVideos();
// The video in `bytes`, which must outlive it; all of the file is looked through, nothing is
// decoded. Throws ImageError for what is no video, cut, or without frames. REQUIRES: OpensVideos().
std::unique_ptr<VideoFile> OpenVideo(std::string_view bytes, const ImageLimits& limits);

// Called before main() by the library that opens videos. Returns true.
using VideoOpener = std::unique_ptr<VideoFile> (*)(std::string_view bytes,
                                                   const ImageLimits& limits);
bool SetVideoOpener(VideoOpener opener);

}  // namespace equipoise
