#pragma once

#include <cstdint>
#include <string>

#include "configs/base/file_handle.h"
#include "data/records/record_reader.h"

namespace equipoise {

// A text file opened for reading, with the facts that identify its content.
struct TextFile {
  // Throws DataError.
  explicit TextFile(const std::string& path);
  std::string path;
  FileHandle file;
  int64_t bytes = 0;
  int64_t mtime_ns = 0;
  uint64_t inode = 0;
};

// Reader of the lines of a file that begin in [begin, end), by pread: a file that is truncated
// while it is read gives short lines, not SIGBUS. Blank lines are counted and skipped; a byte order
// mark is no part of the first line, which counts as if it began at 0. Memory is bounded by the
// longest line allowed.
class LineReader : public RecordReader {
 public:
  // `file` must outlive this object.
  LineReader(const TextFile* file, int64_t begin, int64_t end, int64_t longest_line);
  bool Next(Line& line) override;
  int64_t lines() const override { return lines_; }  // read so far, blank ones too

 private:
  bool Fill();
  bool NextRaw(Line& line);

  const TextFile* file_;
  int64_t end_, longest_;
  int64_t offset_;  // of buffer_[at_] in the file
  std::string buffer_;
  size_t at_ = 0;
  int64_t lines_ = 0;
};

// Reads `bytes` bytes at `offset`, fewer at the end of the file. Throws DataError for I/O errors.
std::string ReadAt(const TextFile& file, uint64_t offset, uint64_t bytes);

}  // namespace equipoise
