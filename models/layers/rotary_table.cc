#include "models/layers/rotary_table.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/layers/kv_cache.h"
#include "parallel/device.h"

namespace equipoise {
namespace {

// LLaMA 3.1's scaling: wavelengths beyond the original context are stretched by `factor`, those
// well within it are kept, and those in between are interpolated.
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

// theta^(2i / dim), i = 0 .. dim / 2 - 1.
at::Tensor Powers(int64_t dim, double theta) {
  return at::pow(theta, at::arange(0, dim, 2, at::kFloat).div(static_cast<double>(dim)));
}

// The place in the list of pairs of one that turns `turns` times within the original positions.
double PlaceOfTurns(const TextConfig& config, double turns) {
  const auto dim = static_cast<double>(config.rotary_dim());
  const auto context = static_cast<double>(config.rope_original_max_position_embeddings);
  return dim * std::log(context / (turns * 2 * M_PI)) / (2 * std::log(config.rope_theta));
}

// YaRN's "NTK-by-parts": between the places of rope_beta_fast and rope_beta_slow turns a ramp leads
// from frequencies that are kept to those of positions that are interpolated.
at::Tensor Yarn(const at::Tensor& powers, const TextConfig& config) {
  double low = PlaceOfTurns(config, config.rope_beta_fast);
  double high = PlaceOfTurns(config, config.rope_beta_slow);
  if (config.rope_truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.rotary_dim() - 1));
  if (low == high) high += 0.001;
  const at::Tensor places = at::arange(0, config.rotary_dim() / 2, at::kFloat);
  const at::Tensor kept = places.sub(low).div(high - low).clamp(0, 1).neg().add(1);
  const at::Tensor interpolated = powers.mul(config.rope_factor).reciprocal();
  return interpolated.mul(kept.neg().add(1)).add(powers.reciprocal().mul(kept));
}

at::Tensor LongRope(const at::Tensor& powers, const std::vector<double>& factors) {
  return at::tensor(factors, at::kFloat).mul(powers).reciprocal();
}

// Theta of "dynamic" scaling, as in Transformers: it grows with a sequence beyond the model's
// positions.
double StretchedTheta(const TextConfig& config, int64_t length) {
  const auto dim = static_cast<double>(config.rotary_dim());
  const double beyond =
      static_cast<double>(length) / static_cast<double>(config.max_position_embeddings);
  const double stretch = config.rope_factor * beyond - (config.rope_factor - 1);
  return config.rope_theta * std::pow(stretch, dim / (dim - 2));
}

}  // namespace

RotaryTable::RotaryTable(const TextConfig& config) : config_(config) {
  const at::Tensor powers = Powers(config.rotary_dim(), config.rope_theta);
  frequencies_ = powers.reciprocal();
  if (config.rope_type == "linear") frequencies_ = frequencies_.div(config.rope_factor);
  if (config.rope_type == "llama3") frequencies_ = StretchLlama3(frequencies_, config);
  if (config.rope_type == "yarn") frequencies_ = Yarn(powers, config);
  if (config.rope_type == "longrope") {
    frequencies_ = LongRope(powers, config.rope_short_factor);
    long_frequencies_ = LongRope(powers, config.rope_long_factor);
  }
}

at::Tensor RotaryTable::FrequenciesFor(int64_t length) const {
  const TextConfig& c = config_;
  if (c.rope_type == "longrope" && length > c.rope_original_max_position_embeddings) {
    return long_frequencies_;
  }
  if (c.rope_type == "dynamic" && length > c.max_position_embeddings) {
    return Powers(c.rotary_dim(), StretchedTheta(c, length)).reciprocal();
  }
  return frequencies_;
}

at::Tensor RotaryTable::AnglesOf(const at::Tensor& position_ids, int64_t length) {
  const at::Device device = position_ids.device();
  frequencies_ = frequencies_.to(device);  // copies the first time only
  if (long_frequencies_.defined()) long_frequencies_ = long_frequencies_.to(device);
  return position_ids.to(at::kFloat).unsqueeze(1).mul(ToDevice(FrequenciesFor(length), device));
}

at::Tensor RotaryTable::GridAngles(const at::Tensor& position_ids) {
  std::vector<at::Tensor> axes, parts;
  for (int64_t axis = 0; axis < 3; ++axis) axes.push_back(AnglesOf(position_ids[axis], 0));
  if (config_.mrope_interleaved) {
    for (size_t axis = 1; axis < 3; ++axis) {
      const auto first = static_cast<int64_t>(axis);
      const int64_t end = 3 * config_.mrope_section[axis];
      axes[0].slice(1, first, end, 3).copy_(axes[axis].slice(1, first, end, 3));
    }
    return axes[0];
  }
  int64_t begin = 0;
  for (size_t i = 0; i < config_.mrope_section.size(); ++i) {
    parts.push_back(axes[i % 3].narrow(1, begin, config_.mrope_section[i]));
    begin += config_.mrope_section[i];
  }
  return at::cat(parts, 1);
}

const RotaryTable::Angles& RotaryTable::At(const MicroBatch& batch) {
  if (position_ids_.is_same(batch.position_ids)) return angles_;
  const at::NoGradGuard no_grad;
  const std::vector<int64_t>& ends = batch.cu_seqlens;
  std::vector<at::Tensor> parts;
  const bool by_length = config_.rope_type == "dynamic" || config_.rope_type == "longrope";
  for (size_t s = 0; by_length && s + 1 < ends.size(); ++s) {
    const int64_t length = ends[s + 1] - ends[s];
    const int64_t cached = batch.decoding == nullptr ? 0 : batch.decoding->cached[s];
    parts.push_back(AnglesOf(batch.position_ids.narrow(0, ends[s], length), cached + length));
  }
  const bool grids = batch.position_ids.dim() == 2;
  const at::Tensor angles = grids           ? GridAngles(batch.position_ids)
                            : parts.empty() ? AnglesOf(batch.position_ids, 0)
                                            : at::cat(parts);
  angles_ = {angles.cos(), angles.sin()};
  if (config_.rope_attention_factor != 1) {
    angles_.cos.mul_(config_.rope_attention_factor);
    angles_.sin.mul_(config_.rope_attention_factor);
  }
  position_ids_ = batch.position_ids;
  return angles_;
}

}  // namespace equipoise
