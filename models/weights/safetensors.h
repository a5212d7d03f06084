#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/spec/weight_names.h"
#include "models/weights/safetensors_file.h"
#include "parallel/lazy_tensor.h"
#include "parallel/parameter.h"

namespace equipoise {

// Reads the tensors of one file, safetensors or PyTorch's (torch_file.h). Throws DataError that
// begins with `path:`.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, SafetensorsEntry>& entries() const { return file_.header().entries; }
  const std::map<std::string, std::string>& metadata() const { return file_.header().metadata; }
  bool Has(const std::string& name) const { return entries().count(name) != 0; }
  // Reads a tensor in its stored dtype.
  at::Tensor Read(const std::string& name) const;
  // Reads into the memory of `target` (contiguous): directly where the dtype is the same, in blocks
  // where it is converted, and through a copy on the CPU where `target` is on another device.
  // `target` has the shape of the tensor (of its `fused` rows), or of a `part` of that: then only
  // the part's bytes are read.
  void ReadInto(const std::string& name, at::Tensor& target, const TensorPart& part = {},
                const FusedRows& fused = {}) const;
  // Throws where ReadInto() a target of `shape` would. Reads only the header.
  void CheckShape(const std::string& name, const std::vector<int64_t>& shape,
                  const TensorPart& part = {}, const FusedRows& fused = {}) const;
  // Reads target.numel() elements of the flattened tensor, from `first` on. `target` may have any
  // shape. REQUIRES: the tensor has as many elements from `first` on.
  void ReadElements(const std::string& name, int64_t first, at::Tensor& target) const;
  // Reads rows [first, last) of dimension 0.
  at::Tensor ReadRows(const std::string& name, int64_t first, int64_t last) const;

 private:
  // Reads rows of the file's tensor from `first` on, or the part of them that `target` has.
  void ReadRowRange(const SafetensorsEntry& entry, int64_t first, const at::Tensor& target,
                    const TensorPart& part) const;
  void ReadRun(const SafetensorsEntry& entry, int64_t first, const at::Tensor& target) const;

  SafetensorsFile file_;
};

// Writes tensors (contiguous) and metadata, and syncs the file (fsync). Not atomic by itself.
// Tensors are ordered by descending element size, so that all are aligned, then by name, and made
// one at a time. Throws RunError when the disk is full or not writable.
void WriteSafetensors(const std::string& path, const std::map<std::string, LazyTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// The weights of one file, or of a folder: model.safetensors, or the shards of
// model.safetensors.index.json; else pytorch_model.bin, or the shards of
// pytorch_model.bin.index.json. Throws DataError.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::string& path);
  const std::string& path() const { return folder_; }
  std::vector<std::string> names() const;  // sorted
  bool Has(const std::string& name) const { return owner_.count(name) != 0; }
  // The file that holds a tensor. REQUIRES: Has(name).
  const SafetensorsReader& FileOf(const std::string& name) const;

 private:
  void OpenOne(const std::string& path);
  void OpenShards(const std::string& index_path);

  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, size_t> owner_;
};

}  // namespace equipoise
