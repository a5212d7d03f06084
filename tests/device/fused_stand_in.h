#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

namespace equipoise::testing {

// Operations of CUDA alone, for the stand-in: LibTorch's signatures, the checks that its kernels
// make, and the results by CPU operations in fp64.

// x [rows, size] and weight [size] of one dtype -> the normalized rows, and 1 / RMS [rows, 1] fp32.
std::tuple<at::Tensor, at::Tensor> FusedRmsNorm(const at::Tensor& x, at::IntArrayRef shape,
                                                const std::optional<at::Tensor>& weight,
                                                std::optional<double> eps);
// The gradients of x and of the weight, as far as `wanted`, in their dtype.
std::tuple<at::Tensor, at::Tensor> FusedRmsNormBackward(const at::Tensor& g, const at::Tensor& x,
                                                        at::IntArrayRef shape,
                                                        const at::Tensor& rstd,
                                                        const std::optional<at::Tensor>& weight,
                                                        std::array<bool, 2> wanted);

// out = beta * self + alpha * a b, with a and b in 16 bits and the rest in fp32.
at::Tensor& AddProductOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                          at::ScalarType dtype, const at::Scalar& beta, const at::Scalar& alpha,
                          at::Tensor& out);

}  // namespace equipoise::testing
