#include "tests/data/image_samples.h"

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
// clang-format on

#include <gif_lib.h>
#include <png.h>
#include <stdlib.h>
#include <tiffio.h>
#include <webp/encode.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace equipoise {
namespace {

// A picture with smooth parts and edges.
std::vector<uint8_t> MakePixels(ImageSize size, int channels) {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < size.height; ++y) {
    for (int64_t x = 0; x < size.width; ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        pixels.push_back(static_cast<uint8_t>(x * (3 + c) + y * (5 - c) + (x * y % 7) * 9));
      }
    }
  }
  return pixels;
}

void PutBigEndian(std::string& bytes, size_t offset, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    bytes.at(offset + i) = static_cast<char>(value >> (8 * (count - 1 - i)));
  }
}

uint32_t Checksum(const std::string& bytes, size_t offset, size_t count) {
  uint32_t crc = 0xffffffff;
  for (size_t i = offset; i < offset + count; ++i) {
    crc ^= static_cast<uint8_t>(bytes.at(i));
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xedb88320 & (0 - (crc & 1)));
  }
  return ~crc;
}

}  // namespace

std::string MakeJpeg(ImageSize size, JpegForm form) {
  jpeg_compress_struct library{};
  jpeg_error_mgr errors{};
  library.err = jpeg_std_error(&errors);
  jpeg_create_compress(&library);
  unsigned char* buffer = nullptr;
  unsigned long count = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&library, &buffer, &count);
  library.image_width = static_cast<JDIMENSION>(size.width);
  library.image_height = static_cast<JDIMENSION>(size.height);
  library.input_components = form.components;
  const J_COLOR_SPACE spaces[] = {JCS_UNKNOWN, JCS_GRAYSCALE, JCS_UNKNOWN, JCS_RGB, JCS_CMYK};
  library.in_color_space = spaces[form.components];
  jpeg_set_defaults(&library);
  if (form.progressive) jpeg_simple_progression(&library);
  // Two scans that refine nothing, so that a file may hold them several times.
  const jpeg_scan_info two_scans[] = {{1, {0}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 0}};
  if (form.progressive && form.components == 1) {
    library.scan_info = two_scans;
    library.num_scans = 2;
  }
  jpeg_start_compress(&library, TRUE);
  const std::vector<uint8_t> comment(65533, 'c');
  for (int left = form.comment_bytes; left > 0; left -= 65533) {
    jpeg_write_marker(&library, JPEG_COM, comment.data(),
                      static_cast<unsigned>(std::min(left, 65533)));
  }
  std::vector<uint8_t> pixels = MakePixels(size, form.components);
  while (library.next_scanline < library.image_height) {
    JSAMPROW row = pixels.data() + int64_t{library.next_scanline} * size.width * form.components;
    jpeg_write_scanlines(&library, &row, 1);
  }
  jpeg_finish_compress(&library);
  std::string bytes(reinterpret_cast<char*>(buffer), count);
  jpeg_destroy_compress(&library);
  free(buffer);  // NOLINT: libjpeg's malloc
  return bytes;
}

std::string MakePng(ImageSize size) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(size.width);
  image.height = static_cast<png_uint_32>(size.height);
  image.format = PNG_FORMAT_RGB;
  const std::vector<uint8_t> pixels = MakePixels(size, 3);
  png_alloc_size_t count = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(count, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &count, 0, pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error(image.message);
  }
  bytes.resize(count);
  return bytes;
}

std::string MakeWebp(ImageSize size, bool lossless) {
  const std::vector<uint8_t> pixels = MakePixels(size, 3);
  const int width = static_cast<int>(size.width), height = static_cast<int>(size.height);
  uint8_t* buffer = nullptr;
  const size_t count = lossless
                           ? WebPEncodeLosslessRGB(pixels.data(), width, height, 3 * width, &buffer)
                           : WebPEncodeRGB(pixels.data(), width, height, 3 * width, 80, &buffer);
  std::string bytes(reinterpret_cast<char*>(buffer), count);
  WebPFree(buffer);
  return bytes;
}

std::string MakeGif(ImageSize size, bool interlaced) {
  std::string bytes;
  const auto write = [](GifFileType* file, const GifByteType* data, int count) {
    static_cast<std::string*>(file->UserData)
        ->append(reinterpret_cast<const char*>(data), static_cast<size_t>(count));
    return count;
  };
  const int width = static_cast<int>(size.width), height = static_cast<int>(size.height);
  GifFileType* file = EGifOpen(&bytes, write, nullptr);
  ColorMapObject* colours = GifMakeMapObject(64, nullptr);
  for (int i = 0; i < 64; ++i) {
    colours->Colors[i] = {static_cast<GifByteType>(4 * i), static_cast<GifByteType>(255 - i),
                          static_cast<GifByteType>(7 * i)};
  }
  EGifPutScreenDesc(file, width, height, 6, 0, colours);
  const GraphicsControlBlock control{0, false, 0, 5};
  GifByteType extension[4];
  EGifGCBToExtension(&control, extension);
  EGifPutExtension(file, GRAPHICS_EXT_FUNC_CODE, 4, extension);
  EGifPutImageDesc(file, 0, 0, width, height, interlaced, nullptr);
  std::vector<uint8_t> pixels = MakePixels(size, 1);
  for (uint8_t& pixel : pixels) pixel &= 63;
  EGifPutLine(file, pixels.data(), static_cast<int>(pixels.size()));
  EGifCloseFile(file, nullptr);
  GifFreeMapObject(colours);
  return bytes;
}

namespace {

void PutLittleEndian(std::string& bytes, uint64_t value, int count) {
  for (int i = 0; i < count; ++i, value >>= 8) bytes += static_cast<char>(value);
}

// The headers of a BMP and its palette of greys.
std::string BmpHead(ImageSize size, int bits, int compression, size_t pixel_bytes) {
  const uint64_t colours = bits == 8 ? 256 : 0, begin = 54 + 4 * colours;
  std::string bytes = "BM";
  PutLittleEndian(bytes, begin + pixel_bytes, 4);
  PutLittleEndian(bytes, 0, 4);
  for (const uint64_t number :
       {begin, uint64_t{40}, static_cast<uint64_t>(size.width), static_cast<uint64_t>(size.height)})
    PutLittleEndian(bytes, number, 4);
  PutLittleEndian(bytes, 1, 2);
  PutLittleEndian(bytes, static_cast<uint64_t>(bits), 2);
  PutLittleEndian(bytes, static_cast<uint64_t>(compression), 4);
  for (const uint64_t number : {uint64_t{pixel_bytes}, uint64_t{0}, uint64_t{0}, colours})
    PutLittleEndian(bytes, number, 4);
  PutLittleEndian(bytes, 0, 4);
  for (uint64_t i = 0; i < colours; ++i) PutLittleEndian(bytes, i * 0x010203, 4);
  return bytes;
}

}  // namespace

std::string MakeBmp(ImageSize size) {
  const std::vector<uint8_t> pixels = MakePixels(size, 3);
  std::string rows;
  for (int64_t y = 0; y < size.height; ++y) {
    rows.append(reinterpret_cast<const char*>(pixels.data()) + 3 * size.width * y,
                static_cast<size_t>(3 * size.width));
    rows.resize((rows.size() + 3) / 4 * 4);
  }
  return BmpHead(size, 24, 0, rows.size()) + rows;
}

std::string MakeBmpRuns(ImageSize size) {
  const std::vector<uint8_t> pixels = MakePixels(size, 1);
  std::string runs;
  for (int64_t y = 0; y < size.height; ++y) {
    if (y % 2 == 0 || size.width < 3) {  // a run of one colour
      runs += static_cast<char>(size.width);
      runs += static_cast<char>(y);
    } else {  // pixels one by one
      runs += '\0';
      runs += static_cast<char>(size.width);
      runs.append(reinterpret_cast<const char*>(pixels.data()) + y * size.width,
                  static_cast<size_t>(size.width));
      runs.resize((runs.size() + 1) / 2 * 2);
    }
    runs += std::string("\0\0", 2);
  }
  runs += std::string("\0\1", 2);
  return BmpHead(size, 8, 1, runs.size()) + runs;
}

std::string MakeTiff(ImageSize size, int compression, int orientation) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/picture.tif";
  TIFF* file = TIFFOpen(path.c_str(), "w");
  if (file == nullptr) throw std::runtime_error("cannot write " + path);
  TIFFSetField(file, TIFFTAG_IMAGEWIDTH, static_cast<uint32_t>(size.width));
  TIFFSetField(file, TIFFTAG_IMAGELENGTH, static_cast<uint32_t>(size.height));
  TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, 8);
  TIFFSetField(file, TIFFTAG_SAMPLESPERPIXEL, 3);
  TIFFSetField(file, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  TIFFSetField(file, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_RGB);
  TIFFSetField(file, TIFFTAG_COMPRESSION, compression);
  TIFFSetField(file, TIFFTAG_ORIENTATION, orientation);
  TIFFSetField(file, TIFFTAG_ROWSPERSTRIP, 8);
  std::vector<uint8_t> pixels = MakePixels(size, 3);
  for (int64_t y = 0; y < size.height; ++y)
    TIFFWriteScanline(file, pixels.data() + 3 * size.width * y, static_cast<uint32_t>(y), 0);
  TIFFClose(file);
  std::ifstream written(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(written), {}};
}

std::string WithJpegSize(std::string jpeg, ImageSize size) {
  size_t frame = jpeg.find("\xff\xc0");
  if (frame == jpeg.npos) frame = jpeg.find("\xff\xc2");
  PutBigEndian(jpeg, frame + 5, static_cast<uint64_t>(size.height), 2);
  PutBigEndian(jpeg, frame + 7, static_cast<uint64_t>(size.width), 2);
  return jpeg;
}

std::string WithPngSize(std::string png, ImageSize size) {
  PutBigEndian(png, 16, static_cast<uint64_t>(size.width), 4);
  PutBigEndian(png, 20, static_cast<uint64_t>(size.height), 4);
  PutBigEndian(png, 29, Checksum(png, 12, 17), 4);
  return png;
}

}  // namespace equipoise
