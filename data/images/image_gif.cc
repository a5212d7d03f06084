#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "data/images/image_codec.h"
#include "data/images/image_colours.h"

namespace equipoise {
namespace {

constexpr int kMostBlocks = 1 << 12;  // before the first frame

[[noreturn]] void Fail(const char* what) {
  throw ImageError(std::string("GIF cannot be decoded: ") + what);
}

int ReadBytes(GifFileType* library, GifByteType* out, int count) {
  auto* left = static_cast<std::string_view*>(library->UserData);
  const size_t read = std::min(left->size(), static_cast<size_t>(count));
  std::memcpy(out, left->data(), read);
  left->remove_prefix(read);
  return static_cast<int>(read);
}

struct Close {
  void operator()(GifFileType* library) const { DGifCloseFile(library, nullptr); }
};
using Reader = std::unique_ptr<GifFileType, Close>;

// Reads up to the pixels of the first frame; returns the index that it lies on.
uint8_t FindFrame(GifFileType* library) {
  uint8_t background = 0;
  for (int block = 0; block < kMostBlocks; ++block) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(library, &type) == GIF_ERROR) break;
    if (type == IMAGE_DESC_RECORD_TYPE) {
      if (DGifGetImageDesc(library) == GIF_ERROR) break;
      return background;
    }
    if (type != EXTENSION_RECORD_TYPE) break;
    int code = 0;
    GifByteType* data = nullptr;
    int read = DGifGetExtension(library, &code, &data);
    for (; read != GIF_ERROR && data != nullptr; read = DGifGetExtensionNext(library, &data)) {
      const bool transparent = code == GRAPHICS_EXT_FUNC_CODE && data[0] >= 4 && (data[1] & 1) != 0;
      if (transparent) background = data[4];
    }
    if (read == GIF_ERROR) break;
  }
  Fail("it is cut or damaged before its first frame");
}

Palette PaletteOf(const GifFileType& library) {
  const ColorMapObject* colours = library.Image.ColorMap;
  if (colours == nullptr) colours = library.SColorMap;
  if (colours == nullptr) return GreyPalette(8);
  Palette palette{};
  for (int i = 0; i < std::min(colours->ColorCount, 256); ++i) {
    const GifColorType& colour = colours->Colors[i];
    palette[static_cast<size_t>(i)] = {colour.Red, colour.Green, colour.Blue};
  }
  return palette;
}

// The rows of a frame in the order in which the file has them.
std::vector<int64_t> RowOrder(const GifImageDesc& frame) {
  std::vector<int64_t> rows;
  const auto every = [&](int64_t first, int64_t step) {
    for (int64_t y = first; y < frame.Height; y += step) rows.push_back(y);
  };
  if (!frame.Interlace) {
    every(0, 1);
  } else {
    every(0, 8), every(4, 8), every(2, 4), every(1, 2);
  }
  return rows;
}

}  // namespace

void DecodeGif(std::string_view bytes, ImageSize size, uint8_t* rgb) {
  std::string_view left = bytes;
  const Reader reader(DGifOpen(&left, ReadBytes, nullptr));
  if (reader == nullptr) Fail("it is cut or damaged in its header");
  const uint8_t background = FindFrame(reader.get());
  const GifImageDesc& frame = reader->Image;
  if (frame.Left < 0 || frame.Top < 0 || frame.Width < 0 || frame.Height < 0 ||
      frame.Left + frame.Width > size.width || frame.Top + frame.Height > size.height) {
    Fail("its headers disagree about the size");
  }
  if (frame.Width == 0 || frame.Height == 0) Fail("its first frame is empty");
  const Palette palette = PaletteOf(*reader);
  for (int64_t i = 0; i < size.width * size.height; ++i)
    std::memcpy(rgb + 3 * i, palette[background].data(), 3);
  std::vector<uint8_t> row(static_cast<size_t>(frame.Width));
  for (const int64_t y : RowOrder(frame)) {
    if (DGifGetLine(reader.get(), row.data(), frame.Width) == GIF_ERROR)
      Fail("its first frame is cut or damaged");
    uint8_t* out = rgb + 3 * ((frame.Top + y) * size.width + frame.Left);
    for (size_t x = 0; x < row.size(); ++x) std::memcpy(out + 3 * x, palette[row[x]].data(), 3);
  }
}

}  // namespace equipoise
