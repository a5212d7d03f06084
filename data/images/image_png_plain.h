#pragma once

#include <cstdint>
#include <string_view>

#include "data/images/image_size.h"

namespace equipoise {

// Decodes a plain PNG, as nearly all are: samples of 8 bits, not interlaced, its rows within 64
// MiB, whole and undamaged. False for every other file; then `rgb` is unspecified, and libpng is to
// be asked, which reads all forms and says what is wrong. What is decoded here libpng would have
// decoded to the same pixels; but a deflate stream that no encoder writes, made to have the right
// checksums, may be refused by zlib and not here.
bool DecodePlainPng(std::string_view bytes, ImageSize size, uint8_t* rgb);

}  // namespace equipoise
