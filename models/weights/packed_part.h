#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/spec/lora.h"
#include "parallel/packed_weight.h"

namespace equipoise {

// The part of a matrix that a rank holds: all of it (dim -1), or a range of rows (0) or columns.
struct MatrixPart {
  int dim = -1;
  int64_t begin = 0;
  std::vector<int64_t> shape;  // of the part
};

// Packs the part of a weight [out, in], fp32 on the CPU, and moves it to `device`. Blocks and
// scales are those of the whole matrix, so that a weight has the same values on every mesh; NF4's
// are those of bitsandbytes (its CPU code), with double quantisation. Throws ConfigError that
// begins with `name` where blocks of a split matrix would reach over its rows.
std::shared_ptr<const PackedWeight> PackedPart(const at::Tensor& whole, Packing packing,
                                               const MatrixPart& part, at::Device device,
                                               const std::string& name);

// NF4 of a matrix as bitsandbytes' quantize_4bit(blocksize=64, compress_statistics=True): codes two
// a byte, the first in the high bits; scales (the largest of each block) less `offset`, quantised
// in blocks of 256.
struct Nf4Blocks {
  at::Tensor codes;         // [32 a block] uint8, the last block filled up with zeros
  at::Tensor absmax_codes;  // [blocks] uint8
  at::Tensor absmax2;       // [blocks / 256, rounded up] fp32
  float offset = 0;
};
// REQUIRES: `matrix` is fp32 on the CPU, of any shape, with an element at least.
Nf4Blocks QuantizeNf4(const at::Tensor& matrix);
// The scales of all blocks, fp32.
at::Tensor ScalesOf(const Nf4Blocks& blocks);

// The 16 values of NF4 (QLoRA, appendix E), ascending.
const std::vector<float>& Nf4Values();

}  // namespace equipoise
