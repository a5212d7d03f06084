#include "models/families/qwen2_vl/encoder_specs.h"

#include <fmt/format.h>

#include <algorithm>

namespace equipoise {
namespace {

ActivationSpec EncoderRows(const VisionConfig& vision) {
  return {RowKind::kPatches, vision.hidden_size};
}

bool HasLayerNorm(const VisionConfig& vision) { return vision.norm_type != "rms_norm"; }

Pass NormPass(const VisionConfig& vision) {
  const double h = static_cast<double>(vision.hidden_size);
  return {HasLayerNorm(vision) ? PassKind::kLayerNorm : PassKind::kNorm, PerRow::Patches(h),
          /*whole=*/true};
}

// Numbers of a row that a norm saves.
double Statistics(const VisionConfig& vision) { return HasLayerNorm(vision) ? 2 : 1; }

LayerSpec PatchEmbeddingSpec(const VisionConfig& vision) {
  const int64_t hidden = vision.hidden_size, side = vision.patch_size;
  const int64_t frames = vision.temporal_patch_size;
  const int64_t patch = vision.num_channels * frames * side * side;
  LayerSpec spec;
  spec.kind = "patch_embedding";
  spec.title = "patch embedding";
  spec.shape = fmt::format("hidden {}, patch {} x {} x {} x {}", hidden, vision.num_channels,
                           frames, side, side);
  spec.name = "visual.patch_embed";
  spec.component = Component::kEncoder;
  spec.AddTensor("proj.weight", {hidden, vision.num_channels, frames, side, side},
                 Init::Normal(vision.initializer_range));
  spec.output = EncoderRows(vision);
  spec.needs_input_gradient = false;
  const double h = static_cast<double>(hidden), p = static_cast<double>(patch);
  spec.mlp.products = {{PerRow::Patches(1), hidden, patch}};
  spec.mlp.passes = {{PassKind::kCopy, PerRow::Patches(p), /*whole=*/true}};
  spec.mlp.saved_weights = PerRow::Patches(p);
  spec.mlp.workspace = PerRow::Patches(h);
  return spec;
}

void AddBlockParameters(const VisionConfig& vision, const Split& heads, const Split& inner,
                        LayerSpec& spec) {
  const int64_t hidden = vision.hidden_size;
  const bool norm_bias = HasLayerNorm(vision);
  const double deviation = vision.initializer_range;
  spec.AddNorm("norm1", hidden, norm_bias);
  spec.AddColumnLinears({{"attn.q_proj", heads}, {"attn.k_proj", heads}, {"attn.v_proj", heads}},
                        hidden, /*bias=*/true, deviation);
  spec.AddRowLinear("attn.proj", heads, hidden, /*bias=*/true, deviation);
  spec.AddNorm("norm2", hidden, norm_bias);
  if (vision.hidden_act == "silu") {
    spec.AddColumnLinears({{"mlp.gate_proj", inner}, {"mlp.up_proj", inner}}, hidden,
                          /*bias=*/true, deviation);
    spec.AddRowLinear("mlp.down_proj", inner, hidden, /*bias=*/true, deviation);
  } else {
    spec.AddColumnLinears({{"mlp.fc1", inner}}, hidden, /*bias=*/true, deviation);
    spec.AddRowLinear("mlp.fc2", inner, hidden, /*bias=*/true, deviation);
  }
}

void AddAttentionCosts(const VisionConfig& vision, double query, bool windowed, LayerSpec& spec) {
  const int64_t hidden = vision.hidden_size, width = static_cast<int64_t>(query);
  const double h = static_cast<double>(hidden), q = query;
  const double heads =
      q / static_cast<double>(hidden / vision.num_attention_heads);  // on this rank
  HalfCost& attention = spec.attention;
  attention.products = {{PerRow::Patches(1), 3 * width, hidden},
                        {PerRow::Patches(1), hidden, width}};
  // Scores and weighted values: two products of rows x rows x query.
  (windowed ? attention.attention_flops_per_window_pair
            : attention.attention_flops_per_patch_pair) = 4 * q;
  attention.attention_heads = heads;
  attention.keys_values = PerRow::Patches(2 * q);
  attention.passes = {NormPass(vision),
                      {PassKind::kRotary, PerRow::Patches(2 * q)},
                      {PassKind::kQueries, PerRow::Patches(q)},
                      {PassKind::kResidual, PerRow::Patches(h), /*whole=*/true}};
  attention.input = PerRow::Patches(h);
  // q, k and v (one product), q and k rotated, the result; the output of the norm is saved for
  // weight gradients only.
  attention.saved = PerRow::Patches(6 * q);
  attention.saved_weights = attention.saved_whole = PerRow::Patches(h);
  attention.saved_fp32 = PerRow::Patches(Statistics(vision) + heads);
  attention.workspace = PerRow::Patches(h + 6 * q);
}

void AddMlpCosts(const VisionConfig& vision, int64_t inner, LayerSpec& spec) {
  const int64_t hidden = vision.hidden_size;
  const bool gated = vision.hidden_act == "silu";
  const double h = static_cast<double>(hidden), i = static_cast<double>(inner);
  HalfCost& mlp = spec.mlp;
  mlp.products = {{PerRow::Patches(1), gated ? 2 * inner : inner, hidden},
                  {PerRow::Patches(1), hidden, inner}};
  mlp.passes = {NormPass(vision),
                {gated ? PassKind::kGatedUnit : PassKind::kGelu, PerRow::Patches(i)},
                {PassKind::kResidual, PerRow::Patches(h), /*whole=*/true}};
  mlp.input = PerRow::Patches(h);
  mlp.saved = PerRow::Patches(gated ? 2 * i : i);
  mlp.saved_weights = PerRow::Patches(h + i);
  mlp.saved_whole = PerRow::Patches(h);
  mlp.saved_fp32 = PerRow::Patches(Statistics(vision));
  mlp.workspace = PerRow::Patches(2 * h + (gated ? 3 * i : i));
}

LayerSpec VisionBlockSpec(const VisionConfig& vision, int64_t index, int ranks) {
  const int64_t hidden = vision.hidden_size, heads = vision.num_attention_heads;
  const bool windowed = HasWindows(vision, index);
  LayerSpec spec;
  spec.kind = "vision_block";
  spec.title = "vision blocks";
  spec.shape = fmt::format("hidden {}, inner {}, heads {}, rotary, {}, {}{}", hidden,
                           vision.intermediate_size, heads, vision.norm_type, vision.hidden_act,
                           windowed ? fmt::format(", window {}", vision.window_size) : "");
  spec.name = fmt::format("visual.blocks.{}", index);
  spec.index = index;
  spec.component = Component::kEncoder;
  const Split by_head =
      Split::Heads(heads, heads, hidden / heads, "attention heads of the vision model");
  const Split by_width =
      Split::Width(vision.intermediate_size, "columns of the vision model's MLP");
  AddBlockParameters(vision, by_head, by_width, spec);
  spec.input = spec.output = EncoderRows(vision);
  spec.has_halves = true;
  AddAttentionCosts(vision, static_cast<double>(by_head.Largest(ranks)), windowed, spec);
  AddMlpCosts(vision, by_width.Largest(ranks), spec);
  if (ranks > 1) {
    spec.attention.all_reduces =
        spec.attention.gradient_all_reduces = {{PerRow::Patches(static_cast<double>(hidden))}};
    spec.mlp.all_reduces = spec.mlp.gradient_all_reduces = spec.attention.all_reduces;
  }
  return spec;
}

LayerSpec MergerSpec(const ModelConfig& config, int ranks) {
  const VisionConfig& vision = config.vision;
  const int64_t square = config.shuffle() * config.shuffle();
  const int64_t in = vision.hidden_size * square, out = config.text.hidden_size;
  const double deviation = vision.initializer_range;
  const Split by_width = Split::Width(in, "columns of the projector");
  LayerSpec spec;
  spec.kind = "projector";
  spec.title = "projector";
  spec.shape = fmt::format("in {}, out {}, {} patches, {}", in, out, square, vision.norm_type);
  spec.name = "visual.merger";
  spec.component = Component::kConnector;
  spec.AddNorm("ln_q", vision.hidden_size, HasLayerNorm(vision));
  spec.AddColumnLinears({{"mlp.0", by_width}}, in, /*bias=*/true, deviation);
  spec.AddRowLinear("mlp.2", by_width, out, /*bias=*/true, deviation);
  spec.input = EncoderRows(vision);
  spec.output = {RowKind::kImageTokens, out};

  const int64_t part = by_width.Largest(ranks);
  const double i = static_cast<double>(in), o = static_cast<double>(out);
  const double p = static_cast<double>(part);
  HalfCost& mlp = spec.mlp;
  mlp.products = {{PerRow::ImageTokens(1), part, in}, {PerRow::ImageTokens(1), out, part}};
  mlp.passes = {NormPass(vision), {PassKind::kGelu, PerRow::ImageTokens(p)}};
  if (vision.window_size > 0) {
    mlp.passes.push_back({PassKind::kCopy, PerRow::ImageTokens(o), /*whole=*/true});
  }
  if (ranks > 1) {
    mlp.all_reduces = {{PerRow::ImageTokens(o)}};
    mlp.gradient_all_reduces = {{PerRow::ImageTokens(i)}};
  }
  mlp.input = PerRow::Patches(static_cast<double>(vision.hidden_size));
  mlp.saved = PerRow::ImageTokens(p);              // before GELU
  mlp.saved_weights = PerRow::ImageTokens(i + p);  // the norm's output, GELU's
  mlp.saved_fp32 = PerRow::Patches(Statistics(vision));
  mlp.workspace = PerRow::ImageTokens(i + o);
  return spec;
}

}  // namespace

bool HasWindows(const VisionConfig& vision, int64_t block) {
  const std::vector<int64_t>& full = vision.full_attention;
  return vision.window_size > 0 && std::find(full.begin(), full.end(), block) == full.end();
}

std::vector<LayerSpec> Qwen2VlEncoderSpecs(const ModelConfig& config, int tensor_ranks) {
  std::vector<LayerSpec> specs = {PatchEmbeddingSpec(config.vision)};
  for (int64_t i = 0; i < config.vision.num_hidden_layers; ++i) {
    specs.push_back(VisionBlockSpec(config.vision, i, tensor_ranks));
  }
  specs.push_back(MergerSpec(config, tensor_ranks));
  return specs;
}

}  // namespace equipoise
