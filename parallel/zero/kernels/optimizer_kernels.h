#pragma once

#include <memory>

#include "parallel/kernels/kernel_image.h"

namespace equipoise {

// Operators of LibTorch, each one launch of a kernel of the program's own
// (optimizer_kernel_list.h). `weight`, `gradient` and the buffers of a shard are flat:
//
//   equipoise::adamw_(chunks, weight, remainder, gradient, exp_avg, exp_avg_sq, lr, weight_decay,
//                     betas, eps, clip, step, random)
//     Update number `step` (1 = the first). chunks [n, 10] int64: AdamWChunk; weight fp32, or
//     bf16 with its remainder int16, or without one, rounded by `random`, AdamWRow's; exp_avg and
//     exp_avg_sq fp32 or bf16; lr and weight_decay: of each group, at most AdamWRow::kMostGroups;
//     clip: a factor on the gradients, which stay as they are.
//   equipoise::square_nodes(nodes, flat)
//     The sums of squares of parts of `flat` fp32: nodes [n, 2] int64, each a SquareNode; [n] fp64.
//
// AdamW and GpuSquares take them on CUDA, once it has them. On the CPU they run the kernels' row
// functions, for tests and stand-ins.

// The kernels of this build, loaded onto the current GPU. Throws RunError with the cause.
std::unique_ptr<KernelImage> LoadOptimizerKernels();

// Gives the operators to CUDA, by `image`, for the rest of the process. To be called once.
void UseOptimizerKernels(std::unique_ptr<KernelImage> image);

}  // namespace equipoise
