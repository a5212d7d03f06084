#pragma once

#include <ATen/core/Tensor.h>

namespace equipoise {

// An fp32 master weight as two halves of 16 bits: the bf16 weight that the model computes with, and
// what is left of the master. With its bits `u` as an integer,
//
//   weight = (u + 0x8000) >> 16,   remainder = u - (weight << 16), in [-2^15, 2^15)
//
// so the weight is the master rounded to nearest, ties away from zero, and the two give the master
// back to the bit. Ties to even would not do: 0x3F7F8000 and 0x3F808000 would both round to 0x3F80,
// with remainders of -2^15 and 2^15, which share 16 bits. A NaN whose bits are 0x7FFF8000 or more
// keeps its bits, but its weight is none: masters are to be finite.
//
// Tensors: `master` fp32, `weight` bf16, `remainder` int16; contiguous, of one size, on one device.

// The weight alone. It may be fp16 here, which is rounded to nearest, ties to even: what fp16
// leaves of a master fits no 16 bits.
void RoundMaster(const at::Tensor& master, at::Tensor weight);
// Both halves.
void SplitMaster(const at::Tensor& master, at::Tensor weight, at::Tensor remainder);
void JoinMaster(const at::Tensor& weight, const at::Tensor& remainder, at::Tensor master);

}  // namespace equipoise
