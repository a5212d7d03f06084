#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace equipoise {

// Where a record lies in its file.
struct RecordExtent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A record as it lies in its file: a line of JSONL, an element of an array, the members of a sample
// in a shard.
struct Line {
  uint64_t offset = 0;
  uint64_t bytes = 0;     // without the line end
  int64_t number = 0;     // 1-based; a line's is counted from where the reader began
  std::string_view text;  // until the next call; empty when it is longer than the limit
  bool too_long = false;
};

// Reader of the records that begin in a range of a file's bytes.
class RecordReader {
 public:
  RecordReader() = default;
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;
  virtual ~RecordReader() = default;
  // Reads the next record; false after the last. Throws DataError for I/O errors.
  virtual bool Next(Line& line) = 0;
  // Numbers used so far, which those of the next range are counted from; 0 where numbers count from
  // the beginning of the file.
  virtual int64_t lines() const = 0;
};

}  // namespace equipoise
