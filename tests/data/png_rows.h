#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace equipoise {

// PNG files put together from their parts, also such as no encoder writes.

inline constexpr std::string_view kPngSignature("\x89PNG\r\n\x1a\n", 8);
inline constexpr int kPngColourTypes[] = {0, 2, 3, 4, 6};

// Bytes of a pixel of 8 bits a sample.
int PngChannels(int colour_type);
// A chunk with its checksum.
std::string PngChunk(std::string_view type, std::string_view data);
// `form`: the depth and what follows it.
std::string PngHeader(int64_t width, int64_t height, std::string_view form);
// Depth 8, not interlaced.
std::string PngForm(int colour_type);
// A zlib stream.
std::string PngDeflated(std::string_view raw);
// 256 colours.
std::string PngPalette();

// A picture of 8 bits a sample, whose rows `raw` holds: for each its filter's number, then the
// filtered samples. `with_more`: the data goes on for a byte, which libpng overlooks.
std::string MakePngOfRows(int colour_type, int64_t width, std::string_view raw,
                          bool with_more = false);

}  // namespace equipoise
