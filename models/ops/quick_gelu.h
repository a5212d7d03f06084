#pragma once

#include <ATen/core/Tensor.h>

namespace equipoise::ops {

// CLIP's approximation of GELU: x * sigmoid(1.702 x). Saves its input only.
at::Tensor QuickGelu(const at::Tensor& x);

}  // namespace equipoise::ops
