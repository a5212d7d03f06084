#include "tests/data/image_samples.h"

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
// clang-format on

#include <png.h>
#include <stdlib.h>

#include <algorithm>
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

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "picture-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::Write(const std::string& name, const std::string& bytes) const {
  std::string path = path_ + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace equipoise
