#pragma once

#include <ATen/core/Tensor.h>

namespace equipoise {

// Magnitude of the largest element; infinite where one is NaN, 0 where there is none.
double Magnitude(const at::Tensor& values);

}  // namespace equipoise
