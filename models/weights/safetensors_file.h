#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "configs/base/regular_file.h"

namespace equipoise {

// One tensor in a safetensors file.
struct SafetensorsEntry {
  std::string dtype;  // "F32", "BF16", "F16", "F64", "I64", "I32", "U8", "BOOL", ...
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes within the data section
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Bytes of one element; 0 for an unknown dtype.
int64_t SafetensorsElementSize(const std::string& dtype);

// Parses the JSON header of a file whose data section has `data_bytes` bytes. The text is
// untrusted: duplicate names, unknown dtypes, sizes that overflow or contradict shape and dtype,
// and data that is not one gapless run from 0 to `data_bytes` are refused. Throws DataError that
// begins with `path:`.
SafetensorsHeader ParseSafetensorsHeader(std::string_view text, int64_t data_bytes,
                                         const std::string& path);

// An open safetensors file, read with pread: were it mapped, truncation by another process would
// end this one (SIGBUS). LibTorch-free.
class SafetensorsFile {
 public:
  // Reads and checks the header. Throws DataError that begins with `path:`.
  explicit SafetensorsFile(const std::string& path);
  // A file of another form whose tensors lie in it in the same way: entries are bytes of the file.
  SafetensorsFile(const std::string& path, SafetensorsHeader header);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // The entry of a tensor. Throws DataError when there is none.
  const SafetensorsEntry& Find(const std::string& name) const;
  // Reads the bytes [begin, end) of the data section. Throws DataError when the file has become
  // shorter or cannot be read.
  void ReadBytes(int64_t begin, int64_t end, void* target) const;

 private:
  std::string path_;
  FileHandle file_;
  int64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace equipoise
