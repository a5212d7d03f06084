#pragma once

#include "models/ops/kernels/column_sums.h"
#include "models/ops/kernels/dropout_rows.h"
#include "models/ops/kernels/fp8_rows.h"
#include "models/ops/kernels/rotary_rows.h"
#include "models/ops/kernels/scaled_rows.h"
#include "models/ops/kernels/softmax_rows.h"
#include "models/ops/kernels/swi_glu_rows.h"
#include "models/ops/kernels/unpack_rows.h"
#include "parallel/kernels/fp16.h"

// Every CUDA kernel of models/ops: ENTRY(name, row function), in an image by that name.
#define EQUIPOISE_ROW_KERNELS(ENTRY)                                           \
  ENTRY(equipoise_column_sums_fp32, ColumnSumRow<float>)                       \
  ENTRY(equipoise_column_sums_bf16, ColumnSumRow<Bf16>)                        \
  ENTRY(equipoise_column_sums_fp16, ColumnSumRow<Fp16>)                        \
  ENTRY(equipoise_dropout_fp32, DropoutRow<float>)                             \
  ENTRY(equipoise_dropout_bf16, DropoutRow<Bf16>)                              \
  ENTRY(equipoise_dropout_fp16, DropoutRow<Fp16>)                              \
  ENTRY(equipoise_fp8_bf16, Fp8Row<Bf16>)                                      \
  ENTRY(equipoise_rotary_fp32, RotaryRow<float>)                               \
  ENTRY(equipoise_rotary_bf16, RotaryRow<Bf16>)                                \
  ENTRY(equipoise_rotary_fp16, RotaryRow<Fp16>)                                \
  ENTRY(equipoise_scaled_fp32, ScaledRow<float>)                               \
  ENTRY(equipoise_scaled_bf16, ScaledRow<Bf16>)                                \
  ENTRY(equipoise_scaled_fp16, ScaledRow<Fp16>)                                \
  ENTRY(equipoise_softmax_statistics_fp32, SoftmaxStatisticsRow<float>)        \
  ENTRY(equipoise_softmax_statistics_bf16, SoftmaxStatisticsRow<Bf16>)         \
  ENTRY(equipoise_softmax_statistics_fp16, SoftmaxStatisticsRow<Fp16>)         \
  ENTRY(equipoise_cross_entropy_gradient_fp32, CrossEntropyGradientRow<float>) \
  ENTRY(equipoise_cross_entropy_gradient_bf16, CrossEntropyGradientRow<Bf16>)  \
  ENTRY(equipoise_cross_entropy_gradient_fp16, CrossEntropyGradientRow<Fp16>)  \
  ENTRY(equipoise_swi_glu_fp32, SwiGluRow<float>)                              \
  ENTRY(equipoise_swi_glu_bf16, SwiGluRow<Bf16>)                               \
  ENTRY(equipoise_swi_glu_fp16, SwiGluRow<Fp16>)                               \
  ENTRY(equipoise_swi_glu_gradient_fp32, SwiGluGradientRow<float>)             \
  ENTRY(equipoise_swi_glu_gradient_bf16, SwiGluGradientRow<Bf16>)              \
  ENTRY(equipoise_swi_glu_gradient_fp16, SwiGluGradientRow<Fp16>)              \
  ENTRY(equipoise_unpack_int8_fp32, Int8Row<float>)                            \
  ENTRY(equipoise_unpack_int8_bf16, Int8Row<Bf16>)                             \
  ENTRY(equipoise_unpack_int8_fp16, Int8Row<Fp16>)                             \
  ENTRY(equipoise_unpack_nf4_fp32, Nf4Row<float>)                              \
  ENTRY(equipoise_unpack_nf4_bf16, Nf4Row<Bf16>)                               \
  ENTRY(equipoise_unpack_nf4_fp16, Nf4Row<Fp16>)                               \
  ENTRY(equipoise_unpack_gptq_fp32, GptqRow<float>)                            \
  ENTRY(equipoise_unpack_gptq_bf16, GptqRow<Bf16>)                             \
  ENTRY(equipoise_unpack_gptq_fp16, GptqRow<Fp16>)
