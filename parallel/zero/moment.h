#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/zero/kernels/moment_codes.h"

namespace equipoise {

// One of AdamW's two moments of a shard, as it is kept between two steps: numbers in fp32 or bf16,
// or codes of 8 bits with a scale for each block of 256 elements, as bitsandbytes keeps them (but
// for tensors of fewer than 4,096 elements, which are in fp32 there). Elements are counted in the
// shard; of codes a range begins at a whole block, and what follows its end in the last is padding.
class Moment {
 public:
  Moment() = default;
  // Zeros. `kept`: where, and kFloat, kBFloat16, or kByte for codes. `is_signed`: whether some
  // numbers are negative. REQUIRES: `numel` is a multiple of kernels::kCodeBlock.
  Moment(int64_t numel, bool is_signed, const at::TensorOptions& kept);

  bool is_codes() const { return absmax_.defined(); }
  // The numbers, or the codes.
  const at::Tensor& kept() const { return kept_; }
  kernels::MomentCodes codes() const;

  // Elements [begin, begin + size) in fp32; a view where that is what is kept.
  at::Tensor Numbers(int64_t begin, int64_t size) const;
  // What a checkpoint has of them: a view; of codes fp32 numbers, which Set() makes the same codes
  // and scales of. They are Numbers(), but for the code of the most negative: its value is -0.993,
  // and that of the number that has set a block's scale is -1.
  at::Tensor Saved(int64_t begin, int64_t size) const;
  // Rounds the elements from `begin` on to what is kept. `numbers`: [size], on any device.
  void Set(int64_t begin, const at::Tensor& numbers);

 private:
  at::Tensor Read(int64_t begin, int64_t size, bool saved) const;

  bool is_signed_ = false;
  at::Tensor kept_;
  // Of codes: [blocks] fp32; and what they say, on kept_'s device.
  at::Tensor absmax_, values_, bounds_;
};

}  // namespace equipoise
