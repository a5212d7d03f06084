#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "data/images/image_codec.h"
#include "data/images/image_colours.h"

namespace equipoise {
namespace {

// Most bytes of one tile, and of one block that libtiff asks for beyond the file's own bytes.
constexpr int64_t kMostTileBytes = int64_t{64} << 20, kMostBlockBytes = int64_t{1} << 30;

// The file in memory, as libtiff's callbacks see it, and the first thing that went wrong.
struct Memory {
  std::string_view bytes;
  int64_t at = 0;
  std::string problem;
};

Memory* Of(thandle_t handle) { return static_cast<Memory*>(handle); }

tmsize_t ReadBytes(thandle_t handle, void* out, tmsize_t count) {
  Memory& memory = *Of(handle);
  const int64_t left = std::max<int64_t>(std::ssize(memory.bytes) - memory.at, 0);
  const int64_t read = std::clamp<int64_t>(count, 0, left);
  if (read > 0) std::memcpy(out, memory.bytes.data() + memory.at, static_cast<size_t>(read));
  memory.at += read;
  return read;
}
tmsize_t WriteNothing(thandle_t, void*, tmsize_t) { return 0; }
toff_t Seek(thandle_t handle, toff_t offset, int whence) {
  Memory& memory = *Of(handle);
  const int64_t base = whence == SEEK_SET   ? 0
                       : whence == SEEK_CUR ? memory.at
                                            : std::ssize(memory.bytes);
  // An offset beyond any file reads nothing.
  memory.at = std::clamp<int64_t>(base + std::min<int64_t>(static_cast<int64_t>(offset), INT32_MAX),
                                  0, int64_t{1} << 40);
  return static_cast<toff_t>(memory.at);
}
int Close(thandle_t) { return 0; }
toff_t Size(thandle_t handle) { return Of(handle)->bytes.size(); }

int OnError(TIFF*, void* user, const char*, const char* format, va_list values) {
  auto* memory = static_cast<Memory*>(user);
  if (!memory->problem.empty()) return 1;
  char text[200];
  std::vsnprintf(text, sizeof text, format, values);
  memory->problem = text;
  return 1;
}

// Warnings are about tags that do not touch the pixels, except libjpeg's: it goes on with grey.
int OnWarning(TIFF* file, void* user, const char* module, const char* format, va_list values) {
  return module != nullptr && std::string_view(module) == "JPEGLib"
             ? OnError(file, user, module, format, values)
             : 1;
}

[[noreturn]] void Fail(const std::string& what) {
  throw ImageError("TIFF cannot be decoded: " + what);
}

class TiffReader {
 public:
  TiffReader(std::string_view bytes, ImageSize size) : memory_{bytes, 0, {}} {
    const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(
        TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMostBlockBytes);
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), OnError, &memory_);
    TIFFOpenOptionsSetWarningHandlerExtR(options.get(), OnWarning, &memory_);
    // "m": not mapped; the modes that only write are never used.
    file_.reset(TIFFClientOpenExt("picture", "rm", &memory_, ReadBytes, WriteNothing, Seek, Close,
                                  Size, nullptr, nullptr, options.get()));
    if (file_ == nullptr) FailWithProblem();
    ReadForm();
    const bool turned = orientation_ >= 5;
    size_ = turned ? ImageSize{size.height, size.width} : size;
    if (width_ != size_.width || height_ != size_.height)
      Fail("its headers disagree about the size");
  }

  int orientation() const { return orientation_; }
  ImageSize size() const { return size_; }  // before it is turned

  void Read(uint8_t* rgb) {
    if (TIFFIsTiled(file_.get()) != 0) {
      ReadTiles(rgb);
    } else {
      ReadRows(rgb);
    }
  }

 private:
  struct CloseFile {
    void operator()(TIFF* file) const { TIFFClose(file); }
  };

  [[noreturn]] void FailWithProblem() const {
    Fail(memory_.problem.empty() ? "it is cut or damaged" : memory_.problem);
  }

  template <class Value>
  Value Get(uint32_t tag) const {
    Value value{};
    TIFFGetFieldDefaulted(file_.get(), tag, &value);
    return value;
  }

  void ReadForm() {
    width_ = Get<uint32_t>(TIFFTAG_IMAGEWIDTH);
    height_ = Get<uint32_t>(TIFFTAG_IMAGELENGTH);
    depth_ = Get<uint16_t>(TIFFTAG_BITSPERSAMPLE);
    samples_ = Get<uint16_t>(TIFFTAG_SAMPLESPERPIXEL);
    orientation_ = Get<uint16_t>(TIFFTAG_ORIENTATION);
    planes_apart_ = Get<uint16_t>(TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE && samples_ > 1;
    uint16_t photometric = 0;
    if (TIFFGetField(file_.get(), TIFFTAG_PHOTOMETRIC, &photometric) == 0)
      Fail("it does not say what its samples are; convert it");
    photometric_ = photometric;
    if (orientation_ < 1 || orientation_ > 8) orientation_ = 1;
    CheckCompression();
    CheckForm();
    if (photometric_ == PHOTOMETRIC_PALETTE) ReadPalette();
  }

  void CheckCompression() {
    const uint16_t compression = Get<uint16_t>(TIFFTAG_COMPRESSION);
    static constexpr uint16_t kKnown[] = {
        COMPRESSION_NONE,          COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3,
        COMPRESSION_CCITTFAX4,     COMPRESSION_LZW,      COMPRESSION_JPEG,
        COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE,  COMPRESSION_PACKBITS};
    if (std::count(std::begin(kKnown), std::end(kKnown), compression) == 0)
      Fail("its compression, " + std::to_string(compression) + ", is not read; convert it");
    if (photometric_ != PHOTOMETRIC_YCBCR) return;
    if (compression != COMPRESSION_JPEG)
      Fail("it is YCbCr without JPEG, which is not read; convert it");
    TIFFSetField(file_.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    photometric_ = PHOTOMETRIC_RGB;
  }

  void CheckForm() {
    const bool grey =
        photometric_ == PHOTOMETRIC_MINISBLACK || photometric_ == PHOTOMETRIC_MINISWHITE;
    const bool indexed = grey || photometric_ == PHOTOMETRIC_PALETTE;
    const int colours = indexed                                 ? 1
                        : photometric_ == PHOTOMETRIC_RGB       ? 3
                        : photometric_ == PHOTOMETRIC_SEPARATED ? 4
                                                                : 0;
    const bool depth_is_read =
        depth_ == 8 || (depth_ == 16 && (photometric_ == PHOTOMETRIC_MINISBLACK || colours > 1)) ||
        (indexed && samples_ == 1 && (depth_ == 1 || depth_ == 2 || depth_ == 4));
    constexpr int kMostExtra = 3;
    const bool samples_are_read =
        samples_ >= colours && samples_ <= colours + kMostExtra && !(planes_apart_ && colours == 4);
    uint16_t count = 0;
    const uint16_t* kinds = nullptr;
    TIFFGetFieldDefaulted(file_.get(), TIFFTAG_EXTRASAMPLES, &count, &kinds);
    multiplied_ = count > 0 && kinds[0] == EXTRASAMPLE_ASSOCALPHA && samples_ > colours;
    const bool alpha_is_read = !multiplied_ || (colours == 3 && !planes_apart_);
    if (colours == 0 || !depth_is_read || !samples_are_read || !alpha_is_read ||
        Get<uint16_t>(TIFFTAG_SAMPLEFORMAT) != SAMPLEFORMAT_UINT) {
      Fail("its samples are of a form that is not read; convert it");
    }
    palette_ = GreyPalette(depth_, photometric_ == PHOTOMETRIC_MINISWHITE);
    colours_ = colours;
  }

  void ReadPalette() {
    uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
    if (TIFFGetField(file_.get(), TIFFTAG_COLORMAP, &red, &green, &blue) == 0)
      Fail("its palette is missing");
    palette_ = {};
    for (size_t i = 0; i < size_t{1} << depth_; ++i) {
      palette_[i] = {static_cast<uint8_t>(red[i] >> 8), static_cast<uint8_t>(green[i] >> 8),
                     static_cast<uint8_t>(blue[i] >> 8)};
    }
  }

  // Planes that hold colours.
  int planes() const { return planes_apart_ ? colours_ : 1; }

  void ReadRows(uint8_t* rgb) {
    const tmsize_t bytes = TIFFScanlineSize(file_.get());
    CheckRowBytes(bytes, width_);
    std::vector<uint8_t> row(static_cast<size_t>(bytes));
    for (int plane = 0; plane < planes(); ++plane) {
      for (int64_t y = 0; y < height_; ++y) {
        const int read = TIFFReadScanline(file_.get(), row.data(), static_cast<uint32_t>(y),
                                          static_cast<uint16_t>(plane));
        if (read != 1 || !memory_.problem.empty()) FailWithProblem();
        Convert(row.data(), width_, plane, rgb + 3 * y * width_);
      }
    }
  }

  void ReadTiles(uint8_t* rgb) {
    const int64_t wide = Get<uint32_t>(TIFFTAG_TILEWIDTH), high = Get<uint32_t>(TIFFTAG_TILELENGTH);
    const tmsize_t bytes = TIFFTileSize(file_.get()), row = TIFFTileRowSize(file_.get());
    if (wide <= 0 || high <= 0 || bytes <= 0 || bytes > kMostTileBytes || row > bytes / high)
      Fail("its tiles are too large or have no size; convert it");
    CheckRowBytes(row, wide);
    std::vector<uint8_t> tile(static_cast<size_t>(bytes));
    for (int plane = 0; plane < planes(); ++plane) {
      for (int64_t y = 0; y < height_; y += high) {
        for (int64_t x = 0; x < width_; x += wide) {
          const tmsize_t read =
              TIFFReadTile(file_.get(), tile.data(), static_cast<uint32_t>(x),
                           static_cast<uint32_t>(y), 0, static_cast<uint16_t>(plane));
          if (read != bytes || !memory_.problem.empty()) FailWithProblem();
          for (int64_t i = 0; i < std::min(high, height_ - y); ++i) {
            Convert(tile.data() + i * row, std::min(wide, width_ - x), plane,
                    rgb + 3 * ((y + i) * width_ + x));
          }
        }
      }
    }
  }

  // A row of libtiff holds what the form says: else Convert() would read beyond it.
  void CheckRowBytes(int64_t bytes, int64_t width) const {
    const int64_t samples = planes_apart_ ? 1 : samples_;
    if (bytes < (width * samples * depth_ + 7) / 8) Fail("its rows are too short");
  }

  // One row of samples, or of a plane's, to RGB.
  void Convert(const uint8_t* row, int64_t width, int plane, uint8_t* rgb) {
    if (depth_ < 8) {
      unpacked_.resize(static_cast<size_t>(width));
      UnpackSamples(row, depth_, width, unpacked_.data());
      row = unpacked_.data();
    } else if (depth_ == 16) {
      ToBytes(row, width * (planes_apart_ ? 1 : samples_));
      row = unpacked_.data();
    }
    const int64_t step = planes_apart_ ? 1 : samples_;
    if (colours_ == 1) {
      for (int64_t x = 0; x < width; ++x)
        std::memcpy(rgb + 3 * x, palette_[row[x * step]].data(), 3);
    } else if (planes_apart_) {
      for (int64_t x = 0; x < width; ++x) rgb[3 * x + plane] = row[x];
    } else if (colours_ == 3) {
      ConvertRgb(row, width, rgb);
    } else {
      for (int64_t x = 0; x < width; ++x)
        ConvertCmyk(row + x * step, 1, /*complements=*/false, rgb + 3 * x);
    }
  }

  // The high bytes of samples in the machine's order; of grey ones, as Pillow does, the value cut
  // at 255.
  void ToBytes(const uint8_t* row, int64_t count) {
    unpacked_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      uint16_t sample = 0;
      std::memcpy(&sample, row + 2 * i, 2);
      const int byte = colours_ == 1 ? std::min<int>(sample, 255) : sample >> 8;
      unpacked_[static_cast<size_t>(i)] = static_cast<uint8_t>(byte);
    }
  }

  void ConvertRgb(const uint8_t* row, int64_t width, uint8_t* rgb) const {
    for (int64_t x = 0; x < width; ++x, row += samples_, rgb += 3) {
      std::memcpy(rgb, row, 3);
      if (!multiplied_ || row[3] == 255) continue;
      for (int channel = 0; channel < 3; ++channel) {
        rgb[channel] =
            row[3] == 0 ? 0 : static_cast<uint8_t>(std::min(255 * row[channel] / row[3], 255));
      }
    }
  }

  Memory memory_;
  std::unique_ptr<TIFF, CloseFile> file_;
  ImageSize size_;
  int64_t width_ = 0, height_ = 0;
  int depth_ = 0, samples_ = 0, colours_ = 0, photometric_ = 0, orientation_ = 1;
  bool planes_apart_ = false, multiplied_ = false;
  Palette palette_{};
  std::vector<uint8_t> unpacked_;
};

// `from`, a picture of `size`, as its orientation says it is looked at.
void Turn(const uint8_t* from, ImageSize size, int orientation, uint8_t* to) {
  const bool swapped = orientation >= 5;
  const bool right_first =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool bottom_first =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (int64_t y = 0; y < (swapped ? size.width : size.height); ++y) {
    for (int64_t x = 0; x < (swapped ? size.height : size.width); ++x, to += 3) {
      int64_t column = swapped ? y : x, row = swapped ? x : y;
      if (right_first) column = size.width - 1 - column;
      if (bottom_first) row = size.height - 1 - row;
      std::memcpy(to, from + 3 * (row * size.width + column), 3);
    }
  }
}

}  // namespace

void DecodeTiff(std::string_view bytes, ImageSize size, uint8_t* rgb) {
  TiffReader reader(bytes, size);
  if (reader.orientation() == 1) return reader.Read(rgb);
  std::vector<uint8_t> stored(static_cast<size_t>(3 * size.width * size.height));
  reader.Read(stored.data());
  Turn(stored.data(), reader.size(), reader.orientation(), rgb);
}

}  // namespace equipoise
