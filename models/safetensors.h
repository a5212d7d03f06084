#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace equipoise {

// One tensor in a safetensors file.
struct SafetensorsEntry {
  std::string dtype;            // "F32", "BF16", "F16", "F64", "I64", "I32", "U8", "BOOL"
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;   // bytes within the data section
};

// Reads a safetensors file by pread. The header is untrusted: see docs on each check in the .cc.
// Throws DataError that begins with `path:`.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool Has(const std::string& name) const { return entries_.count(name) != 0; }
  // Reads a tensor in its stored dtype.
  at::Tensor Read(const std::string& name) const;
  // Reads into `target` (contiguous, same shape), converting the dtype when it differs.
  void ReadInto(const std::string& name, at::Tensor& target) const;
  // Reads rows [first, last) of dimension 0.
  at::Tensor ReadRows(const std::string& name, int64_t first, int64_t last) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t data_begin_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Writes tensors (contiguous CPU, in name order) and metadata; fsync before it returns. Not atomic by itself.
// Throws RunError when the disk is full or not writable.
void WriteSafetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// A folder's weights: model.safetensors, or the shards of model.safetensors.index.json. Throws DataError.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::string& folder);
  std::vector<std::string> names() const;
  bool Has(const std::string& name) const { return owner_.count(name) != 0; }
  const SafetensorsReader& FileOf(const std::string& name) const;

 private:
  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, size_t> owner_;
};

}  // namespace equipoise
