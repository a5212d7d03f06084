#include "data/images/image_png_plain.h"

#include <libdeflate.h>
#include <png.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/vector_clones.h"
#include "data/images/image_png_rows.h"

// libpng inflates row by row with zlib, which is two thirds of a PNG's time. Here the data of all
// IDAT chunks are inflated at once by libdeflate, in a third of that, into a buffer of the size
// that the header tells; then the rows' filters are undone (PNG specification, section 9). A chunk
// is within the file, its data within the buffer, and a row within both, or the file is not plain.
// O(bytes + pixels).

namespace equipoise {
namespace {

constexpr size_t kMostRowBytes = size_t{64} << 20;
constexpr size_t kMostChunkBytes = size_t{8} << 20;  // libpng refuses longer ones
constexpr size_t kHeaderBytes = 13;

uint32_t BigEndian(std::string_view bytes) {
  const auto byte = [&](size_t i) { return uint32_t{static_cast<uint8_t>(bytes[i])}; };
  return byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
}

struct Chunk {
  std::string_view type, data;
  uint32_t checksum;

  bool IsCritical() const { return (type[0] & 0x20) == 0; }
  bool IsIntact() const {
    uint32_t sum = libdeflate_crc32(0, type.data(), type.size());
    if (!data.empty()) sum = libdeflate_crc32(sum, data.data(), data.size());
    return sum == checksum;
  }
};

// The chunk at the beginning of `bytes`, which is taken off them; none where it is cut or odd.
std::optional<Chunk> NextChunk(std::string_view* bytes) {
  if (bytes->size() < 12) return std::nullopt;
  const size_t length = BigEndian(*bytes);
  if (length > std::min(kMostChunkBytes, bytes->size() - 12)) return std::nullopt;
  const Chunk chunk{bytes->substr(4, 4), bytes->substr(8, length),
                    BigEndian(bytes->substr(8 + length))};
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  if (!std::all_of(chunk.type.begin(), chunk.type.end(), is_letter)) return std::nullopt;
  bytes->remove_prefix(12 + length);
  return chunk;
}

struct PlainPng {
  int colour_type = 0;
  size_t channels = 0;
  std::string_view palette;
  std::vector<std::string_view> data;  // of the IDAT chunks
};

// Bytes of a pixel; 0 for a colour type that is none.
size_t ChannelsOf(int colour_type) {
  switch (colour_type) {
    case PNG_COLOR_TYPE_GRAY:
    case PNG_COLOR_TYPE_PALETTE:
      return 1;
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      return 2;
    case PNG_COLOR_TYPE_RGB:
      return 3;
    case PNG_COLOR_TYPE_RGB_ALPHA:
      return 4;
    default:
      return 0;
  }
}

bool ReadHeader(const Chunk& chunk, ImageSize size, PlainPng* png) {
  if (chunk.type != "IHDR" || chunk.data.size() != kHeaderBytes || !chunk.IsIntact()) return false;
  if (BigEndian(chunk.data) != size.width || BigEndian(chunk.data.substr(4)) != size.height)
    return false;
  png->colour_type = static_cast<uint8_t>(chunk.data[9]);
  png->channels = ChannelsOf(png->colour_type);
  // Depth, then compression, filter and interlacing.
  return png->channels > 0 && chunk.data[8] == 8 &&
         chunk.data.substr(10) == std::string_view("\0\0\0", 3);
}

bool IsPalette(std::string_view data) {
  return !data.empty() && data.size() % 3 == 0 && data.size() <= 3 * 256;
}

Palette PaletteOf(std::string_view data) {
  Palette palette{};
  std::memcpy(palette.data(), data.data(), data.size());
  return palette;
}

// Reads all chunks up to the end. Others than these four are skipped as libpng is told to, whatever
// their checksums, or critical.
std::optional<PlainPng> ReadChunks(std::string_view bytes, ImageSize size) {
  constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
  if (bytes.substr(0, 8) != kSignature) return std::nullopt;
  bytes.remove_prefix(8);
  PlainPng png;
  std::optional<Chunk> chunk = NextChunk(&bytes);
  if (!chunk || !ReadHeader(*chunk, size, &png)) return std::nullopt;
  bool data_ended = false;
  while ((chunk = NextChunk(&bytes))) {
    const bool is_data = chunk->type == "IDAT";
    data_ended |= !is_data && !png.data.empty();
    if (!chunk->IsCritical()) continue;
    if (!chunk->IsIntact()) return std::nullopt;
    if (is_data) {
      if (data_ended) return std::nullopt;
      png.data.push_back(chunk->data);
    } else if (chunk->type == "PLTE") {
      const bool is_wanted = png.colour_type == PNG_COLOR_TYPE_PALETTE && png.palette.empty();
      if (!is_wanted || data_ended || !IsPalette(chunk->data)) return std::nullopt;
      png.palette = chunk->data;
    } else {
      const bool has_palette = !png.palette.empty() || png.colour_type != PNG_COLOR_TYPE_PALETTE;
      const bool is_end = chunk->type == "IEND" && chunk->data.empty();
      if (is_end && data_ended && has_palette) return png;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// The data of all chunks; `joined` holds them where there are several.
std::string_view Join(const std::vector<std::string_view>& data, std::string* joined) {
  if (data.size() == 1) return data[0];
  for (const std::string_view part : data) joined->append(part);
  return *joined;
}

// Whether zlib would find all that the data copies within the window that they announce.
bool HasWindow(std::string_view data, size_t raw_bytes) {
  if (data.size() < 2) return false;
  const int bits = (static_cast<uint8_t>(data[0]) >> 4) + 8;
  return bits == 15 || raw_bytes <= size_t{1} << bits;
}

bool Inflate(std::string_view data, uint8_t* raw, size_t raw_bytes) {
  if (!HasWindow(data, raw_bytes)) return false;
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflater(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  if (inflater == nullptr) throw std::bad_alloc();
  size_t used = 0;
  const libdeflate_result result = libdeflate_zlib_decompress_ex(
      inflater.get(), data.data(), data.size(), raw, raw_bytes, &used, nullptr);
  return result == LIBDEFLATE_SUCCESS && used == data.size();
}

// The channels of a pixel, in the first lanes.
using Lanes = int16_t __attribute__((vector_size(16)));
using Bytes = uint8_t __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));

#define EQUIPOISE_INLINE [[gnu::always_inline]] inline

template <size_t kCount>
EQUIPOISE_INLINE Lanes Load(const uint8_t* from) {
  uint32_t word = 0;
  std::memcpy(&word, from, kCount);
  const auto bytes = reinterpret_cast<Bytes>(Words{word, 0, 0, 0});
  return reinterpret_cast<Lanes>(__builtin_shufflevector(bytes, Bytes{}, 0, 16, 1, 16, 2, 16, 3, 16,
                                                         4, 16, 5, 16, 6, 16, 7, 16));
}

template <size_t kCount>
EQUIPOISE_INLINE void Store(Lanes lanes, uint8_t* to) {
  const auto bytes = reinterpret_cast<Bytes>(lanes);
  const auto words = reinterpret_cast<Words>(
      __builtin_shufflevector(bytes, bytes, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14));
  const uint32_t word = words[0];
  std::memcpy(to, &word, kCount);
}

// The sum of each lane's lower byte, without a carry.
EQUIPOISE_INLINE Lanes Add(Lanes a, Lanes b) {
  return reinterpret_cast<Lanes>(reinterpret_cast<Bytes>(a) + reinterpret_cast<Bytes>(b));
}

// The filters that a pixel's left neighbour has a part in. Each gives the pixel, from what the file
// holds of it and the pixels left of it, above, and above left.
struct Sub {
  EQUIPOISE_INLINE Lanes operator()(Lanes held, Lanes left, Lanes, Lanes) const {
    return Add(held, left);
  }
};

struct Average {
  EQUIPOISE_INLINE Lanes operator()(Lanes held, Lanes left, Lanes above, Lanes) const {
    return Add(held, (left + above) >> 1);
  }
};

// Adds that of the three pixels which is nearest to left + above - corner, the first of equally
// near ones. That is the larger of left and above where left + above + the smaller one >= 3 *
// corner, else the smaller one where left + above + the larger one <= 3 * corner, else the corner.
// Both conditions are solved for left: only few operations then wait for the pixel before.
struct Paeth {
  EQUIPOISE_INLINE Lanes operator()(Lanes held, Lanes left, Lanes above, Lanes corner) const {
    const Lanes sum = 3 * corner - above, rest = sum - above;
    const Lanes half = sum >> 1, other = sum - half;
    const Lanes most = half < rest ? half : rest, least = other > rest ? other : rest;
    const Lanes low = Add(held, left < above ? left : above);
    const Lanes high = Add(held, left < above ? above : left);
    return left < least ? (left > most ? Add(held, corner) : low) : high;
  }
};

// Undoes such a filter in a row of pixels of kCount bytes.
template <size_t kCount, class Filter>
EQUIPOISE_INLINE void Undo(const Filter& filter, const uint8_t* held, const uint8_t* above,
                           int64_t width, uint8_t* row) {
  Lanes left{}, corner{};
  for (int64_t x = 0; x < width; ++x, held += kCount, above += kCount, row += kCount) {
    const Lanes up = Load<kCount>(above);
    left = filter(Load<kCount>(held), left, up, corner);
    corner = up;
    Store<kCount>(left, row);
  }
}

template <size_t kCount>
EQUIPOISE_INLINE bool UndoRow(const uint8_t* held, const uint8_t* above, int64_t width,
                              uint8_t* row) {
  const auto count = static_cast<int64_t>(kCount) * width;
  const uint8_t filter = *held++;
  switch (filter) {
    case PNG_FILTER_VALUE_NONE:
      if (row != held) std::copy_n(held, count, row);
      return true;
    case PNG_FILTER_VALUE_SUB:
      Undo<kCount>(Sub(), held, above, width, row);
      return true;
    case PNG_FILTER_VALUE_UP:
      for (int64_t i = 0; i < count; ++i) row[i] = static_cast<uint8_t>(held[i] + above[i]);
      return true;
    case PNG_FILTER_VALUE_AVG:
      Undo<kCount>(Average(), held, above, width, row);
      return true;
    case PNG_FILTER_VALUE_PAETH:
      Undo<kCount>(Paeth(), held, above, width, row);
      return true;
    default:
      return false;
  }
}

// Undoes the filter of a row, whose number is the first byte of `held`; false for a number that is
// none. `row` may be the bytes after it.
EQUIPOISE_VECTOR
bool UndoRow(size_t channels, const uint8_t* held, const uint8_t* above, int64_t width,
             uint8_t* row) {
  switch (channels) {
    case 1:
      return UndoRow<1>(held, above, width, row);
    case 2:
      return UndoRow<2>(held, above, width, row);
    case 3:
      return UndoRow<3>(held, above, width, row);
    default:
      return UndoRow<4>(held, above, width, row);
  }
}

// Undoes the filters of all rows, in their place but for RGB, and converts them.
bool WriteRgb(const PlainPng& png, ImageSize size, uint8_t* raw, uint8_t* rgb) {
  const size_t row_bytes = png.channels * static_cast<size_t>(size.width);
  PngRowConverter convert{png.colour_type, 8, size.width, GreyPalette(8)};
  if (png.colour_type == PNG_COLOR_TYPE_PALETTE) convert.palette = PaletteOf(png.palette);
  const std::vector<uint8_t> none(row_bytes);
  const uint8_t* above = none.data();
  for (int64_t y = 0; y < size.height; ++y, raw += 1 + row_bytes, rgb += 3 * size.width) {
    const bool is_rgb = png.colour_type == PNG_COLOR_TYPE_RGB;
    uint8_t* row = is_rgb ? rgb : raw + 1;
    if (!UndoRow(png.channels, raw, above, size.width, row)) return false;
    if (!is_rgb) convert(row, rgb);
    above = row;
  }
  return true;
}

}  // namespace

bool DecodePlainPng(std::string_view bytes, ImageSize size, uint8_t* rgb) {
  const std::optional<PlainPng> png = ReadChunks(bytes, size);
  if (!png) return false;
  const size_t row_bytes = 1 + png->channels * static_cast<size_t>(size.width);
  const auto height = static_cast<size_t>(size.height);
  if (row_bytes > kMostRowBytes / height) return false;
  std::string joined;
  const std::unique_ptr<uint8_t[]> raw(
      std::make_unique_for_overwrite<uint8_t[]>(row_bytes * height));
  if (!Inflate(Join(png->data, &joined), raw.get(), row_bytes * height)) return false;
  return WriteRgb(*png, size, raw.get(), rgb);
}

}  // namespace equipoise
