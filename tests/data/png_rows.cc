#include "tests/data/png_rows.h"

#include <libdeflate.h>

namespace equipoise {
namespace {

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

}  // namespace

int PngChannels(int colour_type) {
  const int channels[] = {1, 0, 3, 1, 2, 0, 4};
  return channels[colour_type];
}

std::string PngChunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type).append(data);
  return BigEndian(static_cast<uint32_t>(data.size())) + body +
         BigEndian(libdeflate_crc32(0, body.data(), body.size()));
}

std::string PngForm(int colour_type) { return {8, static_cast<char>(colour_type), 0, 0, 0}; }

std::string PngHeader(int64_t width, int64_t height, std::string_view form) {
  return PngChunk("IHDR", BigEndian(static_cast<uint32_t>(width)) +
                              BigEndian(static_cast<uint32_t>(height)) + std::string(form));
}

std::string PngDeflated(std::string_view raw) {
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(1);
  std::string bytes(libdeflate_zlib_compress_bound(compressor, raw.size()), '\0');
  bytes.resize(
      libdeflate_zlib_compress(compressor, raw.data(), raw.size(), bytes.data(), bytes.size()));
  libdeflate_free_compressor(compressor);
  return bytes;
}

std::string PngPalette() {
  std::string palette;
  for (int i = 0; i < 3 * 256; ++i) palette += static_cast<char>(i * 37 + i / 3);
  return palette;
}

std::string MakePngOfRows(int colour_type, int64_t width, std::string_view raw, bool with_more) {
  const int64_t row_bytes = 1 + width * PngChannels(colour_type);
  std::string data = PngDeflated(raw);
  if (with_more) data += '\0';
  return std::string(kPngSignature) +
         PngHeader(width, static_cast<int64_t>(raw.size()) / row_bytes, PngForm(colour_type)) +
         (colour_type == 3 ? PngChunk("PLTE", PngPalette()) : "") + PngChunk("IDAT", data) +
         PngChunk("IEND", "");
}

}  // namespace equipoise
