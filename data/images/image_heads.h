#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "configs/base/file_handle.h"
#include "data/images/image_size.h"

namespace equipoise {

// Reader of a file or of memory for header parsers, which need a few bytes at any offset.
class HeadReader {
 public:
  explicit HeadReader(std::string_view bytes)
      : size_(static_cast<int64_t>(bytes.size())), window_(bytes) {}
  HeadReader(const FileHandle& file, int64_t size) : file_(&file), size_(size), buffer_(kWindow) {}

  // `count` (at most a window) bytes from `offset`, fewer only at the end. A negative offset: none.
  std::string_view Get(int64_t offset, int64_t count) {
    if (offset < 0 || offset >= size_) return {};
    count = std::min(count, size_ - offset);
    if (offset < start_ || offset + count > start_ + static_cast<int64_t>(window_.size()))
      Load(offset);
    if (offset - start_ >= static_cast<int64_t>(window_.size())) return {};
    return window_.substr(static_cast<size_t>(offset - start_), static_cast<size_t>(count));
  }
  // The byte at `offset`, or -1 beyond the end.
  int Byte(int64_t offset) {
    const std::string_view byte = Get(offset, 1);
    return byte.empty() ? -1 : static_cast<unsigned char>(byte[0]);
  }
  // Two bytes, most significant first, or -1 beyond the end.
  int Short(int64_t offset) { return static_cast<int>(Number(offset, 2, /*big_endian=*/true)); }
  // `count` bytes (at most 4) as a number, or -1 beyond the end.
  int64_t Number(int64_t offset, int64_t count, bool big_endian = false) {
    const std::string_view bytes = Get(offset, count);
    if (std::ssize(bytes) < count) return -1;
    int64_t value = 0;
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(big_endian ? i : count - 1 - i);
      value = value << 8 | static_cast<unsigned char>(bytes[at]);
    }
    return value;
  }

 private:
  // Most headers end within one window; a segment of metadata is skipped without being read.
  static constexpr size_t kWindow = 8192;

  void Load(int64_t offset) {
    if (file_ == nullptr) return;
    const ssize_t got = ReadFullyAt(*file_, buffer_.data(), buffer_.size(), offset);
    if (got < 0) throw ImageError(std::string("cannot be read: ") + std::strerror(errno));
    start_ = offset;
    window_ = std::string_view(buffer_.data(), static_cast<size_t>(got));
  }

  const FileHandle* file_ = nullptr;
  int64_t size_;
  int64_t start_ = 0;
  std::vector<char> buffer_;
  std::string_view window_;
};

// The sizes that the heads of these kinds tell; REQUIRES: the file begins with the kind's first
// bytes. Throw ImageError for what is cut, damaged, or of a form that is not read.
ImageSize ParseWebp(HeadReader& reader);
// Of the screen, and of the first frame where that is larger.
ImageSize ParseGif(HeadReader& reader);
ImageSize ParseBmp(HeadReader& reader);
ImageSize ParseTiff(HeadReader& reader);  // of the first picture, turned as its orientation says

}  // namespace equipoise
