#pragma once

#include <cstdint>
#include <string>

#include "data/images/image_size.h"

namespace equipoise {

// Small picture files made on the spot.

struct JpegForm {
  int components = 3;
  bool progressive = false;  // of two scans where there is one component
  int comment_bytes = 0;     // written ahead of the frame header, in segments of at most 65,533
};

std::string MakeJpeg(ImageSize size, JpegForm form = {});
std::string MakePng(ImageSize size);  // RGB of 8 bits

// The same file with another size in its header; the checksum is mended.
std::string WithJpegSize(std::string jpeg, ImageSize size);
std::string WithPngSize(std::string png, ImageSize size);

// A folder that is removed with its files.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // The path of a new file that holds `bytes`.
  std::string Write(const std::string& name, const std::string& bytes) const;

 private:
  std::string path_;
};

}  // namespace equipoise
