#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace equipoise {

// The hashes of parallel/kernels/random_bits.h by LibTorch's operations, with the same bits on
// every device: 32-bit numbers in int64 tensors, whose products do not overflow.

// kernels::MixedBits() of each element.
at::Tensor MixedBits(at::Tensor x);
// kernels::RandomBits() of each element's number.
at::Tensor RandomBits(uint64_t key, const at::Tensor& elements);

}  // namespace equipoise
