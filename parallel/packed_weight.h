#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace equipoise {

// A frozen weight that is held in fewer bits than it is computed with. A linear layer unpacks it
// for each product and keeps no copy.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  // This rank's part of the weight [out, in].
  virtual at::Tensor Unpacked(at::ScalarType dtype) const = 0;
  // Bytes held.
  virtual int64_t bytes() const = 0;
};

}  // namespace equipoise
