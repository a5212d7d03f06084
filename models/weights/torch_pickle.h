#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// A tensor as torch.save describes it: a view of a storage, which is a record of the same archive.
struct PickledTensor {
  std::string storage;                 // key of the storage
  std::string dtype;                   // of its elements, as in safetensors: "F32", "BF16", ...
  int64_t offset = 0;                  // of the first element in the storage
  std::vector<int64_t> shape, stride;  // in elements
};

// Reads data.pkl of a file that torch.save has written of a dictionary of tensors (a state_dict):
// the tensors by name. Entries that are no tensors are left out. The bytes are untrusted: they make
// no objects, and call nothing. Throws DataError that begins with `path:`.
std::map<std::string, PickledTensor> ReadTensorPickle(std::string_view bytes,
                                                      const std::string& path);

}  // namespace equipoise
