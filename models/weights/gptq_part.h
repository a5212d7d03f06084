#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "models/spec/lora.h"
#include "models/weights/packed_part.h"
#include "parallel/packed_weight.h"

namespace equipoise {

// The tensors of a linear layer [out, in] as AutoGPTQ and GPTQModel store them: numbers of 4 bits,
// eight in an element, the first in its lowest bits. On the CPU.
struct GptqTensors {
  at::Tensor qweight;  // [in / 8, out] int32
  at::Tensor qzeros;   // [groups, out / 8] int32
  at::Tensor scales;   // [groups, out] fp16, bf16 or fp32
  at::Tensor g_idx;    // [in] int32: the group of each input
};

// The same with an element for each number: w[o][i] = scales[o][g] * (codes[o][i] - zeros[o][g]),
// where g = groups[i].
struct GptqMatrix {
  at::Tensor codes;   // [out, in] uint8, 0 to 15
  at::Tensor zeros;   // [out, groups] uint8, 0 to 16
  at::Tensor scales;  // [out, groups] as in GptqTensors
  at::Tensor groups;  // [in] int32
};

// Rows of the weight, in the order in which `rows` (int64) names columns of `tensors`.
// `zero_offset`: see GptqForm. REQUIRES: shapes and dtypes as above, groups that exist.
GptqMatrix UnpackGptq(const GptqTensors& tensors, const at::Tensor& rows, int zero_offset);

// A weight, fp32 on the CPU, rounded to that form: neighbours in a group, scales by the largest
// element of each, zeros of 8.
GptqMatrix RoundToGptq(const at::Tensor& matrix, const GptqForm& form);

// Packs a part of `whole`, two codes a byte, and moves it to `device`. Of the groups it keeps the
// range that its inputs are of.
std::shared_ptr<const PackedWeight> GptqPart(const GptqMatrix& whole, const MatrixPart& part,
                                             at::Device device);

}  // namespace equipoise
