#include "data/records/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/regular_file.h"

namespace equipoise {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

size_t ReadInto(const TextFile& file, int64_t offset, char* target, size_t bytes) {
  const ssize_t got = ReadFullyAt(file.file, target, bytes, offset);
  if (got < 0) throw DataError(file.path + ": cannot be read: " + std::strerror(errno));
  return static_cast<size_t>(got);
}

}  // namespace

TextFile::TextFile(const std::string& name) : path(name) {
  OpenedFile opened = OpenRegularFile(path);
  if (!opened.problem.empty()) {
    throw DataError(path + ": " + opened.problem + "; give a file of records");
  }
  file = std::move(opened.file);
  bytes = opened.bytes;
  mtime_ns = opened.mtime_ns;
  inode = opened.inode;
}

std::string ReadAt(const TextFile& file, uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  text.resize(ReadInto(file, static_cast<int64_t>(offset), text.data(), bytes));
  return text;
}

LineReader::LineReader(const TextFile* file, int64_t begin, int64_t end, int64_t longest_line)
    : file_(file), end_(std::min(end, file->bytes)), longest_(longest_line), offset_(begin) {
  if (begin == 0) {
    if (ReadAt(*file, 0, kByteOrderMark.size()) != kByteOrderMark) return;
    offset_ = kByteOrderMark.size();
    // Of a range that ends within the mark, too: no other range has the first line.
    if (end_ > 0) end_ = std::min(std::max(end_, offset_ + 1), file->bytes);
    return;
  }
  // The line that covers the byte before `begin` belongs to the range before. Not looked for beyond
  // `end`: many ranges may lie within one huge line.
  offset_ = begin - 1;
  while (offset_ < end_) {
    const std::string block =
        ReadAt(*file, static_cast<uint64_t>(offset_),
               std::min<uint64_t>(kReadBytes, static_cast<uint64_t>(end_ - offset_)));
    const size_t found = block.find('\n');
    offset_ += static_cast<int64_t>(found == std::string::npos ? block.size() : found + 1);
    if (found != std::string::npos || block.empty()) break;
  }
}

bool LineReader::Fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t have = buffer_.size();
  buffer_.resize(have + std::max(kReadBytes, have));
  const size_t got = ReadInto(*file_, offset_ + static_cast<int64_t>(have), buffer_.data() + have,
                              buffer_.size() - have);
  buffer_.resize(have + got);
  return got > 0;
}

bool LineReader::NextRaw(Line& line) {
  if (offset_ >= end_) return false;
  line = {static_cast<uint64_t>(offset_), 0, ++lines_, {}, false};
  size_t searched = 0;
  while (true) {
    const char* from = buffer_.data() + at_ + searched;
    const size_t rest = buffer_.size() - at_ - searched;
    // NOLINTNEXTLINE(bugprone-not-null-terminated-result): bytes, no string
    const void* found = rest == 0 ? nullptr : std::memchr(from, '\n', rest);
    const size_t length =
        found != nullptr ? static_cast<size_t>(static_cast<const char*>(found) - from) : rest;
    line.bytes += length;
    line.too_long = static_cast<int64_t>(line.bytes) > longest_;
    if (found != nullptr) {
      line.text = line.too_long ? std::string_view()
                                : std::string_view(buffer_).substr(at_, searched + length);
      at_ += searched + length + 1;
      offset_ = static_cast<int64_t>(line.offset + line.bytes) + 1;
      return true;
    }
    searched += length;
    // A line that is too long already is skipped without keeping it.
    if (line.too_long) {
      offset_ += static_cast<int64_t>(searched);
      at_ += searched;
      searched = 0;
    }
    if (!Fill()) break;
  }
  line.text = line.too_long ? std::string_view() : std::string_view(buffer_).substr(at_);
  at_ = buffer_.size();
  offset_ = static_cast<int64_t>(line.offset + line.bytes);
  end_ = std::min(end_, offset_);  // the file ends here
  return line.bytes > 0;
}

bool LineReader::Next(Line& line) {
  while (NextRaw(line)) {
    if (line.too_long || line.text.find_first_not_of(" \t\r") != std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace equipoise
