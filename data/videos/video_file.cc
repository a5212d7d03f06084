#include "data/videos/video_file.h"

namespace equipoise {
namespace {

// Set before main(), when objects of other files may not be made yet.
VideoOpener& Opener() {
  static VideoOpener opener = nullptr;
  return opener;
}

}  // namespace

bool OpensVideos() { return Opener() != nullptr; }

std::unique_ptr<VideoFile> OpenVideo(std::string_view bytes, const ImageLimits& limits) {
  if (!OpensVideos()) throw ImageError("is a video, and this program is built without FFmpeg");
  return Opener()(bytes, limits);
}

bool SetVideoOpener(VideoOpener opener) {
  Opener() = opener;
  return true;
}

}  // namespace equipoise
