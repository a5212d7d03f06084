#include "models/families/internvl/encoder_specs.h"

#include <fmt/format.h>

namespace equipoise {
namespace {

ActivationSpec EncoderRows(const VisionConfig& vision) {
  return {RowKind::kPatches, vision.hidden_size, vision.patches() + 1};
}

// Patches that become one token of the language model; the class token is not among them.
double MergedPatches(const ModelConfig& config) {
  return static_cast<double>(config.shuffle() * config.shuffle());
}

LayerSpec PatchEmbeddingSpec(const ModelConfig& config) {
  const VisionConfig& vision = config.vision;
  const int64_t hidden = vision.hidden_size, patches = vision.patches(), side = vision.patch_size;
  const int64_t patch = vision.num_channels * side * side;
  LayerSpec spec;
  spec.kind = "patch_embedding";
  spec.title = "patch embedding";
  spec.shape = fmt::format("hidden {}, patches {}, patch {} x {} x {}", hidden, patches,
                           vision.num_channels, side, side);
  spec.name = "vision_tower.embeddings";
  spec.component = Component::kEncoder;
  spec.AddTensor("cls_token", {1, 1, hidden}, Init::Zeros());
  spec.AddTensor("patch_embeddings.projection.weight", {hidden, vision.num_channels, side, side},
                 Init::Normal(vision.initializer_range));
  spec.AddTensor("patch_embeddings.projection.bias", {hidden}, Init::Zeros());
  spec.AddTensor("position_embeddings", {1, patches + 1, hidden}, Init::Zeros());
  spec.output = EncoderRows(vision);
  spec.needs_input_gradient = false;
  const double merged = MergedPatches(config), h = static_cast<double>(hidden);
  const double p = static_cast<double>(patch);
  spec.mlp.products = {{PerRow::ImageTokens(merged), hidden, patch}};
  spec.mlp.passes = {{PassKind::kCopy, PerRow::ImageTokens(merged * p), /*whole=*/true},
                     {PassKind::kResidual, PerRow::ImageTokens(merged * h), /*whole=*/true}};
  spec.mlp.saved_weights = PerRow::ImageTokens(merged * p);
  spec.mlp.workspace.per_patch = 2 * h;  // with the class token, and as they come
  spec.mlp.workspace.per_image_token = merged * h;
  return spec;
}

void AddBlockParameters(const VisionConfig& vision, const Split& heads, const Split& inner,
                        LayerSpec& spec) {
  const int64_t hidden = vision.hidden_size;
  const bool norm_bias = vision.norm_type != "rms_norm";
  const double deviation = vision.initializer_range;
  const Init scale = {0, vision.layer_scale_init_value, -1};
  spec.AddNorm("layernorm_before", hidden, norm_bias);
  spec.AddColumnLinears(
      {{"attention.q_proj", heads}, {"attention.k_proj", heads}, {"attention.v_proj", heads}},
      hidden, vision.attention_bias, deviation);
  if (vision.use_qk_norm) {
    spec.AddNorm("attention.q_norm", hidden, /*bias=*/false, heads);
    spec.AddNorm("attention.k_norm", hidden, /*bias=*/false, heads);
  }
  spec.AddRowLinear("attention.projection_layer", heads, hidden, /*bias=*/true, deviation);
  spec.AddTensor("lambda_1", {hidden}, scale);
  spec.AddNorm("layernorm_after", hidden, norm_bias);
  spec.AddColumnLinears({{"mlp.fc1", inner}}, hidden, /*bias=*/true, deviation);
  spec.AddRowLinear("mlp.fc2", inner, hidden, /*bias=*/true, deviation);
  spec.AddTensor("lambda_2", {hidden}, scale);
}

LayerSpec VisionBlockSpec(const VisionConfig& vision, int64_t index, int ranks) {
  const int64_t hidden = vision.hidden_size, heads = vision.num_attention_heads;
  LayerSpec spec;
  spec.kind = "vision_block";
  spec.title = "vision blocks";
  spec.shape =
      fmt::format("hidden {}, inner {}, heads {}, rows {}, {}{}{}", hidden,
                  vision.intermediate_size, heads, vision.patches() + 1, vision.norm_type,
                  vision.use_qk_norm ? ", qk_norm" : "", vision.attention_bias ? ", bias" : "");
  spec.name = fmt::format("vision_tower.encoder.layer.{}", index);
  spec.index = index;
  spec.component = Component::kEncoder;
  const Split by_head =
      Split::Heads(heads, heads, hidden / heads, "attention heads of the vision model");
  const Split by_width =
      Split::Width(vision.intermediate_size, "columns of the vision model's MLP");
  AddBlockParameters(vision, by_head, by_width, spec);
  spec.input = spec.output = EncoderRows(vision);
  spec.has_halves = true;

  const int64_t query = by_head.Largest(ranks), inner = by_width.Largest(ranks);
  const double h = static_cast<double>(hidden), q = static_cast<double>(query);
  const double i = static_cast<double>(inner);
  const double statistics = vision.norm_type == "rms_norm" ? 1 : 2;  // of a row, by a norm
  const int64_t head_dim = hidden / heads, heads_here = query / head_dim;
  const auto part_heads = static_cast<double>(heads_here);
  HalfCost &attention = spec.attention, &mlp = spec.mlp;
  attention.products = {{PerRow::Patches(1), 3 * query, hidden},
                        {PerRow::Patches(1), hidden, query}};
  // Scores and weighted values: two products of rows x rows x query.
  attention.attention_flops_per_patch_pair = 4 * q;
  attention.attention_heads = part_heads;
  attention.keys_values = PerRow::Patches(2 * q);
  const PassKind norm = vision.norm_type == "rms_norm" ? PassKind::kNorm : PassKind::kLayerNorm;
  attention.passes = {{norm, PerRow::Patches(h), /*whole=*/true},
                      {PassKind::kScale, PerRow::Patches(h), /*whole=*/true},
                      {PassKind::kResidual, PerRow::Patches(h), /*whole=*/true}};
  mlp.passes = attention.passes;
  attention.passes.push_back({PassKind::kQueries, PerRow::Patches(q)});
  if (vision.use_qk_norm) attention.passes.push_back({PassKind::kNorm, PerRow::Patches(2 * q)});
  if (ranks > 1) {
    attention.all_reduces = attention.gradient_all_reduces = {{PerRow::Patches(h)}};
    mlp.all_reduces = mlp.gradient_all_reduces = attention.all_reduces;
    if (vision.use_qk_norm) {  // squares of q and k by row
      attention.all_reduces.push_back({PerRow::Patches(2), /*fp32=*/true});
      attention.gradient_all_reduces.push_back(attention.all_reduces.back());
    }
  }
  attention.input = PerRow::Patches(h);
  // q, k, v and the result; with norms, normalized q and k. The outputs of norm and projection are
  // saved for weight gradients only.
  attention.saved = PerRow::Patches(4 * q + (vision.use_qk_norm ? 2 * q : 0));
  attention.saved_weights = attention.saved_whole = PerRow::Patches(2 * h);
  attention.norms = mlp.norms = PerRow::Patches(h);
  attention.saved_fp32 = PerRow::Patches(statistics + part_heads);
  attention.workspace = PerRow::Patches(h + 4 * q);

  mlp.products = {{PerRow::Patches(1), inner, hidden}, {PerRow::Patches(1), hidden, inner}};
  mlp.passes.push_back({PassKind::kGelu, PerRow::Patches(i)});
  mlp.input = PerRow::Patches(h);
  mlp.saved = PerRow::Patches(i);
  mlp.saved_weights = PerRow::Patches(2 * h + i);
  mlp.saved_whole = PerRow::Patches(2 * h);
  mlp.activations = PerRow::Patches(i);
  mlp.saved_fp32 = PerRow::Patches(statistics);
  mlp.workspace = PerRow::Patches(2 * h + i);
  return spec;
}

LayerSpec ProjectorSpec(const ModelConfig& config, int ranks) {
  const int64_t in = config.vision.hidden_size * config.shuffle() * config.shuffle();
  const int64_t out = config.text.hidden_size, tokens = config.tokens_per_tile();
  const double deviation = config.text.initializer_range;
  const Split by_width = Split::Width(out, "columns of the projector");
  LayerSpec spec;
  spec.kind = "projector";
  spec.title = "projector";
  spec.shape = fmt::format("in {}, out {}, rows {}", in, out, tokens);
  spec.name = "multi_modal_projector";
  spec.component = Component::kConnector;
  spec.AddNorm("layer_norm", in, /*bias=*/true);
  spec.AddColumnLinears({{"linear_1", by_width}}, in, /*bias=*/true, deviation);
  spec.AddRowLinear("linear_2", by_width, out, /*bias=*/true, deviation);
  spec.input = EncoderRows(config.vision);
  spec.output = {RowKind::kImageTokens, out};

  const int64_t part = by_width.Largest(ranks);
  const double i = static_cast<double>(in), o = static_cast<double>(out);
  const double p = static_cast<double>(part);
  HalfCost& mlp = spec.mlp;
  mlp.products = {{PerRow::ImageTokens(1), part, in}, {PerRow::ImageTokens(1), out, part}};
  mlp.passes = {{PassKind::kLayerNorm, PerRow::ImageTokens(i), /*whole=*/true},
                {PassKind::kCopy, PerRow::ImageTokens(i), /*whole=*/true},
                {PassKind::kGelu, PerRow::ImageTokens(p)}};
  if (ranks > 1) {
    mlp.all_reduces = {{PerRow::ImageTokens(o)}};
    mlp.gradient_all_reduces = {{PerRow::ImageTokens(i)}};
  }
  mlp.input = PerRow::Patches(static_cast<double>(spec.input.width));
  mlp.saved = PerRow::ImageTokens(i + p);  // merged squares, before GELU
  mlp.saved_weights = PerRow::ImageTokens(i + p);
  mlp.saved_fp32 = PerRow::ImageTokens(2);
  mlp.workspace = PerRow::ImageTokens(i + o);
  return spec;
}

}  // namespace

std::vector<LayerSpec> InternVlEncoderSpecs(const ModelConfig& config, int tensor_ranks) {
  std::vector<LayerSpec> specs = {PatchEmbeddingSpec(config)};
  for (int64_t i = 0; i < config.vision.num_hidden_layers; ++i) {
    specs.push_back(VisionBlockSpec(config.vision, i, tensor_ranks));
  }
  specs.push_back(ProjectorSpec(config, tensor_ranks));
  return specs;
}

}  // namespace equipoise
