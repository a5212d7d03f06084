#pragma once

#include <memory>

#include "parallel/kernels/kernel_image.h"

namespace equipoise::ops {

// Operators of LibTorch, each one launch of a kernel of the program's own (kernel_list.h) but for
// what is said below, in fp32, bf16 and fp16, computed in fp32 and rounded once:
//   equipoise::swi_glu(gate_up), equipoise::swi_glu_gradient(g, gate_up): models/ops/activation.h
//   equipoise::rotary(x, cos, sin, direction): models/ops/rotary.h; direction -1: its gradient
//   equipoise::softmax_statistics(logits, ids): of logits [rows, n], whose rows may
//     lie apart, [3, rows] fp32: the largest,
//     the sum of exp(logit - largest), the logit of the target; 0 where ids [rows] is not in [0, n)
//   equipoise::cross_entropy_gradient_(logits, ids, statistics, weights, scale): the gradient of
//     scale * weights (none: 1) * cross entropy, in the place of the logits
//   equipoise::scaled(base, x, scale): models/ops/activation.h, layer scale
//   equipoise::column_sums(g, x, mean, rstd, plain): models/ops/gradient_sums.h; its chunks' sums
//     are added up by LibTorch
//   equipoise::dropped(x, key, row, column, p): dropout_launch.h
//   equipoise::fp8_rows(x): of x [rows, n] bf16, codes [rows, n] e4m3 and scales [rows, 1] fp32:
//     models/ops/fp8_product.h
//   equipoise::unpack_int8(codes, scales, dtype), unpack_nf4(codes, scale_codes, largest, tables,
//     offset, layout, dtype), unpack_gptq(codes, scales, zeros, groups, dtype): unpack_launch.h
// The operations take them on CUDA, once it has them. On the CPU they run the kernels' row
// functions, for tests and stand-ins.

// The kernels of this build, loaded onto the current GPU. Throws RunError with the cause.
std::unique_ptr<KernelImage> LoadKernels();

// Gives the operators to CUDA, by `image`, for the rest of the process. To be called once, before
// the first operation of a model.
void UseKernels(std::unique_ptr<KernelImage> image);

}  // namespace equipoise::ops
