#include <png.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "data/images/image_codec.h"
#include "data/images/image_colours.h"
#include "data/images/image_png_plain.h"
#include "data/images/image_png_rows.h"

namespace equipoise {
namespace {

// Limits on chunks that are kept; ancillary ones are skipped.
constexpr uint32_t kMostChunks = 1000;
constexpr size_t kMostChunkBytes = size_t{8} << 20;
// Compressed data after the last pixel: a thousand times as much once it is inflated.
constexpr size_t kMostDataLeft = 64 << 10;
// Bytes of the rows of an interlaced picture, which are all kept.
constexpr size_t kMostRowBytes = size_t{640} << 20;

// libpng reports failures by a callback that must not return. This one jumps back into Start() or
// Read(), over frames that hold C data only: nothing with a destructor lives between.
struct PngReader {
  png_structp library;
  png_infop info;
  const uint8_t* next;
  size_t left;
  size_t left_after_data;  // bytes of the file after its last IDAT chunk
  ImageSize size;
  int colour_type, depth, passes;
  char message[128];
};
static_assert(std::is_trivially_destructible_v<PngReader>);

void Fail(png_structp library, png_const_charp message) {
  auto* reader = static_cast<PngReader*>(png_get_error_ptr(library));
  std::strncpy(reader->message, message, sizeof reader->message - 1);
  png_longjmp(library, 1);
}

// Warnings are about chunks that do not touch the pixels.
void IgnoreWarning(png_structp, png_const_charp) {}

void ReadBytes(png_structp library, png_bytep out, size_t count) {
  auto* reader = static_cast<PngReader*>(png_get_io_ptr(library));
  if (count > reader->left) png_error(library, "the file is cut");
  std::memcpy(out, reader->next, count);
  reader->next += count;
  reader->left -= count;
}

// Bytes of a file after its last IDAT chunk before the end of the picture.
size_t LeftAfterData(std::string_view bytes) {
  size_t left = bytes.size();
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[at + i]); };
    const size_t length =
        size_t{byte(0)} << 24 | size_t{byte(1)} << 16 | size_t{byte(2)} << 8 | size_t{byte(3)};
    if (bytes.substr(at + 4, 4) == "IEND") break;
    const bool is_data = bytes.substr(at + 4, 4) == "IDAT";
    if (length > bytes.size() - at - 12) return is_data ? 0 : left;
    at += 12 + length;
    if (is_data) left = bytes.size() - at;
  }
  return left;
}

// Reads up to the pixels. False leaves the reason in `message`.
bool Start(PngReader* reader) {
  if (setjmp(png_jmpbuf(reader->library)) != 0) return false;
  png_structp library = reader->library;
  png_set_read_fn(library, reader, ReadBytes);
  png_set_user_limits(library, static_cast<png_uint_32>(reader->size.width),
                      static_cast<png_uint_32>(reader->size.height));
  png_set_chunk_cache_max(library, kMostChunks);
  png_set_chunk_malloc_max(library, kMostChunkBytes);
  png_set_keep_unknown_chunks(library, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(library, reader->info);
  if (png_get_image_width(library, reader->info) != reader->size.width ||
      png_get_image_height(library, reader->info) != reader->size.height) {
    png_error(library, "the size changed");
  }
  reader->colour_type = png_get_color_type(library, reader->info);
  reader->depth = png_get_bit_depth(library, reader->info);
  png_set_packing(library);  // samples of 1, 2 and 4 bits in a byte each, not scaled
  if (reader->colour_type != PNG_COLOR_TYPE_GRAY) png_set_strip_16(library);
  reader->passes = png_set_interlace_handling(library);
  png_read_update_info(library, reader->info);
  return true;
}

// Reads every pass into the rows that begin at `rows`, `stride` bytes apart; calls `row_done(y)`
// after each row of the last pass. A stride of zero reads all rows into one.
template <class RowDone>
bool Read(PngReader* reader, uint8_t* rows, size_t stride, const RowDone& row_done) {
  static_assert(std::is_trivially_destructible_v<RowDone>);
  if (setjmp(png_jmpbuf(reader->library)) != 0) return false;
  for (int pass = 1; pass <= reader->passes; ++pass) {
    for (int64_t y = 0; y < reader->size.height; ++y) {
      png_read_row(reader->library, rows + static_cast<size_t>(y) * stride, nullptr);
      if (pass == reader->passes) row_done(y);
    }
  }
  if (reader->left > reader->left_after_data + kMostDataLeft) {
    png_error(reader->library, "it holds more data than its pixels need");
  }
  png_read_end(reader->library, nullptr);
  return true;
}

Palette ReadPalette(const PngReader& reader) {
  Palette palette{};
  png_colorp colours = nullptr;
  int count = 0;
  png_get_PLTE(reader.library, reader.info, &colours, &count);
  for (int i = 0; i < std::min(count, 256); ++i) {
    palette[static_cast<size_t>(i)] = {colours[i].red, colours[i].green, colours[i].blue};
  }
  return palette;
}

bool ReadPixels(PngReader* reader, uint8_t* rgb) {
  const bool has_palette = reader->colour_type == PNG_COLOR_TYPE_PALETTE;
  const PngRowConverter convert{reader->colour_type, reader->depth, reader->size.width,
                                has_palette ? ReadPalette(*reader) : GreyPalette(reader->depth)};
  const size_t row_bytes = png_get_rowbytes(reader->library, reader->info);
  const bool interlaced = reader->passes > 1;  // every pass then adds to the rows of those before
  if (interlaced && row_bytes > kMostRowBytes / static_cast<size_t>(reader->size.height)) {
    throw ImageError("PNG cannot be decoded: it is interlaced and too large for that; convert it");
  }
  std::vector<uint8_t> rows(row_bytes *
                            (interlaced ? static_cast<size_t>(reader->size.height) : 1));
  const size_t stride = interlaced ? row_bytes : 0;
  const uint8_t* first = rows.data();
  const int64_t rgb_stride = 3 * reader->size.width;
  return Read(reader, rows.data(), stride, [&convert, first, stride, rgb, rgb_stride](int64_t y) {
    convert(first + static_cast<size_t>(y) * stride, rgb + y * rgb_stride);
  });
}

}  // namespace

void DecodePng(std::string_view bytes, ImageSize size, uint8_t* rgb) {
  if (DecodePlainPng(bytes, size, rgb)) return;
  PngReader reader{};
  reader.next = reinterpret_cast<const uint8_t*>(bytes.data());
  reader.left = bytes.size();
  reader.left_after_data = LeftAfterData(bytes);
  reader.size = size;
  reader.library = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, Fail, IgnoreWarning);
  if (reader.library == nullptr) throw std::bad_alloc();
  reader.info = png_create_info_struct(reader.library);
  // Frees libpng's structs however this ends.
  struct Cleanup {
    PngReader* reader;
    ~Cleanup() { png_destroy_read_struct(&reader->library, &reader->info, nullptr); }
  } cleanup{&reader};
  if (reader.info == nullptr) throw std::bad_alloc();
  if (!Start(&reader) || !ReadPixels(&reader, rgb)) {
    throw ImageError(std::string("PNG cannot be decoded: ") + reader.message);
  }
}

}  // namespace equipoise
