#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/parameter.h"

namespace equipoise::ops {

// SwiGLU: gate_up [..., 2n], gate in the first half -> silu(gate) * up [..., n]. Saves its input
// only.
at::Tensor SwiGlu(const at::Tensor& gate_up);

// Layer scale of InternViT: residual + x * scale, with `scale` [hidden] along the last dimension.
at::Tensor ScaledResidual(const at::Tensor& residual, const at::Tensor& x, Parameter& scale);

}  // namespace equipoise::ops
