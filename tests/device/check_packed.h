#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace equipoise::testing {

// That weights in fewer bits (NF4, int8, GPTQ), of a matrix [rows, columns] and of parts of it,
// have the CPU's bits on `device`, in fp32, bf16 and fp16.
void CheckPackedWeights(int64_t rows, int64_t columns, at::Device device);

}  // namespace equipoise::testing
