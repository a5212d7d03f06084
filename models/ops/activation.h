#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/parameter.h"

namespace equipoise::ops {

// gate_up [..., 2n], gate in the first half -> silu(gate) * up [..., n]. Keeps its input alone.
at::Tensor SwiGlu(const at::Tensor& gate_up);

// residual + x * scale, with `scale` [hidden] along the last dimension (InternViT's layer scale).
at::Tensor ScaledResidual(const at::Tensor& residual, const at::Tensor& x, Parameter& scale);

}  // namespace equipoise::ops
