#include "models/layers/rotary_table.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace equipoise {
namespace {

// LLaMA 3.1: wavelengths beyond the original context are stretched by `factor`, those well within
// it stay, and those between are blended.
at::Tensor StretchLlama3(const at::Tensor& frequencies, const TextConfig& config) {
  const auto context = static_cast<double>(config.rope_original_max_position_embeddings);
  const double low = config.rope_low_freq_factor, high = config.rope_high_freq_factor;
  const at::Tensor wavelength = frequencies.reciprocal().mul(2 * M_PI);
  const at::Tensor stretched = frequencies.div(config.rope_factor);
  const at::Tensor blend = wavelength.reciprocal().mul(context).sub(low).div(high - low);
  const at::Tensor blended = blend.neg().add(1).mul(stretched).add(blend.mul(frequencies));
  const at::Tensor outer = at::where(wavelength.gt(context / low), stretched, frequencies);
  const at::Tensor between =
      wavelength.ge(context / high).logical_and(wavelength.le(context / low));
  return at::where(between, blended, outer);
}

}  // namespace

RotaryTable::RotaryTable(const TextConfig& config) {
  const at::Tensor exponents =
      at::arange(0, config.head_dim, 2, at::kFloat).div(static_cast<double>(config.head_dim));
  frequencies_ = at::pow(config.rope_theta, exponents).reciprocal();
  if (config.rope_type == "llama3") frequencies_ = StretchLlama3(frequencies_, config);
}

const RotaryTable::Angles& RotaryTable::At(const at::Tensor& position_ids) {
  if (!position_ids_.is_same(position_ids)) {
    const at::NoGradGuard no_grad;
    frequencies_ = frequencies_.to(position_ids.device());  // once: they stay there
    const at::Tensor angles = position_ids.to(at::kFloat).unsqueeze(1).mul(frequencies_);
    angles_ = {angles.cos(), angles.sin()};
    position_ids_ = position_ids;
  }
  return angles_;
}

}  // namespace equipoise
