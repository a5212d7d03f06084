#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace equipoise {

// A contiguous tensor that is there already, or is made each time that it is asked for, so that of
// many large ones only the one in use is in memory.
class LazyTensor {
 public:
  LazyTensor(at::Tensor held)  // NOLINT(google-explicit-constructor): a tensor is a lazy one
      : sizes_(held.sizes().vec()), dtype_(held.scalar_type()), make_([held] { return held; }) {}
  // `make` returns a tensor of these sizes and dtype, and is called on one thread at a time.
  LazyTensor(std::vector<int64_t> sizes, at::ScalarType dtype, std::function<at::Tensor()> make)
      : sizes_(std::move(sizes)), dtype_(dtype), make_(std::move(make)) {}

  const std::vector<int64_t>& sizes() const { return sizes_; }
  at::ScalarType dtype() const { return dtype_; }
  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t size : sizes_) n *= size;
    return n;
  }
  // The tensor itself where it is there, so that it can be written to.
  at::Tensor Get() const { return make_(); }

 private:
  std::vector<int64_t> sizes_;
  at::ScalarType dtype_;
  std::function<at::Tensor()> make_;
};

}  // namespace equipoise
