#include "data/images/image_codec.h"

namespace equipoise {

void DecodeRgb(std::string_view bytes, const ImageHeader& header, uint8_t* rgb) {
  switch (header.kind) {
    case ImageKind::kJpeg:
      return DecodeJpeg(bytes, header.size, rgb);
    case ImageKind::kPng:
      return DecodePng(bytes, header.size, rgb);
    case ImageKind::kWebp:
      return DecodeWebp(bytes, header.size, rgb);
    case ImageKind::kGif:
      return DecodeGif(bytes, header.size, rgb);
    case ImageKind::kBmp:
      return DecodeBmp(bytes, header.size, rgb);
    case ImageKind::kTiff:
      return DecodeTiff(bytes, header.size, rgb);
  }
}

}  // namespace equipoise
