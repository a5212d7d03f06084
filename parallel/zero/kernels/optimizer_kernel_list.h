#pragma once

#include "parallel/zero/kernels/adamw_rows.h"
#include "parallel/zero/kernels/square_rows.h"

// Every CUDA kernel of parallel/zero: ENTRY(name, row function), in an image by that name.
#define EQUIPOISE_OPTIMIZER_KERNELS(ENTRY)                        \
  ENTRY(equipoise_square_nodes, SquareNodeRow)                    \
  ENTRY(equipoise_adamw_fp32, AdamWRow<float, float>)             \
  ENTRY(equipoise_adamw_fp32_moments_bf16, AdamWRow<float, Bf16>) \
  ENTRY(equipoise_adamw_bf16, AdamWRow<Bf16, float>)              \
  ENTRY(equipoise_adamw_bf16_moments_bf16, AdamWRow<Bf16, Bf16>)  \
  ENTRY(equipoise_adamw_bf16_alone, AdamWRow<Bf16, float, false>) \
  ENTRY(equipoise_adamw_bf16_alone_moments_bf16, AdamWRow<Bf16, Bf16, false>)
