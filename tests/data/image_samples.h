#pragma once

#include <cstdint>
#include <string>

#include "data/images/image_size.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {

// Small picture files made on the spot.

struct JpegForm {
  int components = 3;
  bool progressive = false;  // of two scans where there is one component
  int comment_bytes = 0;     // written ahead of the frame header, in segments of at most 65,533
};

std::string MakeJpeg(ImageSize size, JpegForm form = {});
std::string MakePng(ImageSize size);  // RGB of 8 bits
std::string MakeWebp(ImageSize size, bool lossless);
std::string MakeGif(ImageSize size, bool interlaced);  // of 64 colours, one of them transparent
std::string MakeBmp(ImageSize size);                   // 24 bits a pixel
std::string MakeBmpRuns(ImageSize size);               // RLE8; width at most 255
// RGB of 8 bits; `compression` is a number of the format: 1 none, 5 LZW, 7 JPEG, 8 Deflate.
std::string MakeTiff(ImageSize size, int compression, int orientation = 1);

// The same file with another size in its header; the checksum is mended.
std::string WithJpegSize(std::string jpeg, ImageSize size);
std::string WithPngSize(std::string png, ImageSize size);

}  // namespace equipoise
