#include "models/ops/fp8_product.h"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>

#include <optional>
#include <tuple>

#include "configs/base/error.h"
#include "parallel/kernels/fp8.h"
#include "parallel/kernels/own_operator.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kMultiple = 16;  // of the sizes that the scaled product takes

at::Tensor Multiplied(const Fp8Rows& x, const Fp8Rows& weight) {
  const at::Tensor sums = at::mm(x.codes.to(at::kFloat), weight.codes.to(at::kFloat).t());
  return at::mul(sums, x.scales).mul_(weight.scales.t());
}

}  // namespace

Fp8Rows RoundRowsToFp8(const at::Tensor& x) {
  EQUIPOISE_CHECK(x.dim() == 2 && x.scalar_type() == at::kBFloat16);
  static const OwnOperator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)> own(
      "equipoise::fp8_rows");
  if (own.IsFor(x)) {
    const auto [codes, scales] = own(x);
    return {codes, scales};
  }
  const at::Tensor largest =
      at::amax(at::abs(x), 1, /*keepdim=*/true).to(at::kFloat).clamp_min_(kernels::kLeastFp8Row);
  const at::Tensor factor = at::full_like(largest, kernels::kLargestFp8).div_(largest);
  const at::Tensor scaled = at::mul(x.to(at::kFloat), factor);
  const at::Tensor codes =
      at::clamp(scaled, -kernels::kLargestFp8, kernels::kLargestFp8).to(at::kFloat8_e4m3fn);
  // A transposed weight's codes would have its strides, which the scaled product refuses.
  return {codes.contiguous(), largest.div_(kernels::kLargestFp8)};
}

at::Tensor Fp8Product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Fp8Rows left = RoundRowsToFp8(x), right = RoundRowsToFp8(weight);
  if (!x.is_cuda()) {
    at::Tensor product = Multiplied(left, right);
    if (bias.defined()) product.add_(bias);
    return product.to(x.scalar_type());
  }
  const std::optional<at::Tensor> added = bias.defined() ? std::optional(bias) : std::nullopt;
  return at::_scaled_mm(left.codes, right.codes.t(), left.scales, right.scales.t(), added,
                        /*scale_result=*/std::nullopt, x.scalar_type(), /*use_fast_accum=*/true);
}

bool SuitsFp8(at::IntArrayRef shape) {
  return shape.size() == 2 && shape[0] % kMultiple == 0 && shape[1] % kMultiple == 0;
}

}  // namespace equipoise::ops
