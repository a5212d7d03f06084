#include "models/families/llava/encoder_specs.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace equipoise {
namespace {

ActivationSpec EncoderRows(const VisionConfig& vision) {
  return {RowKind::kPatches, vision.hidden_size, vision.rows()};
}

// The patches among the encoder's rows: all but the class token.
PerRow PatchesAlone(const VisionConfig& vision, double number) {
  return PerRow::Patches(number * static_cast<double>(vision.patches()) /
                         static_cast<double>(vision.rows()));
}

LayerSpec PatchEmbeddingSpec(const VisionConfig& vision) {
  const int64_t hidden = vision.hidden_size, side = vision.patch_size;
  const int64_t patch = vision.num_channels * side * side;
  const double deviation = vision.initializer_range;
  LayerSpec spec;
  spec.kind = "patch_embedding";
  spec.title = "patch embedding";
  spec.shape = fmt::format("hidden {}, patches {}, patch {} x {} x {}{}", hidden, vision.patches(),
                           vision.num_channels, side, side,
                           vision.class_token ? ", norm" : ", no class token");
  spec.name = "vision_tower";
  spec.component = Component::kEncoder;
  if (vision.class_token) {
    spec.AddTensor("embeddings.class_embedding", {hidden}, Init::Normal(deviation));
  }
  spec.AddTensor("embeddings.patch_embedding.weight", {hidden, vision.num_channels, side, side},
                 Init::Normal(deviation));
  if (!vision.class_token) {
    spec.AddTensor("embeddings.patch_embedding.bias", {hidden}, Init::Zeros());
  }
  spec.AddTensor("embeddings.position_embedding.weight", {vision.rows(), hidden},
                 Init::Normal(deviation));
  if (vision.class_token) spec.AddNorm("pre_layrnorm", hidden, /*bias=*/true);
  spec.output = EncoderRows(vision);
  spec.needs_input_gradient = false;
  const double h = static_cast<double>(hidden), p = static_cast<double>(patch);
  spec.mlp.products = {{PatchesAlone(vision, 1), hidden, patch}};
  spec.mlp.passes = {{PassKind::kCopy, PatchesAlone(vision, p), /*whole=*/true},
                     {PassKind::kResidual, PatchesAlone(vision, h), /*whole=*/true}};
  spec.mlp.saved_weights = PatchesAlone(vision, p);
  spec.mlp.workspace = PerRow::Patches(3 * h);
  if (vision.class_token) {
    spec.mlp.passes.push_back({PassKind::kLayerNorm, PerRow::Patches(h), /*whole=*/true});
    spec.mlp.saved_weights.per_patch += h;  // the norm's input
    spec.mlp.saved_fp32 = PerRow::Patches(2);
  }
  return spec;
}

void AddBlockParameters(const VisionConfig& vision, const Split& heads, const Split& inner,
                        LayerSpec& spec) {
  const int64_t hidden = vision.hidden_size;
  const double deviation = vision.initializer_range;
  spec.AddNorm("layer_norm1", hidden, /*bias=*/true);
  spec.AddColumnLinears(
      {{"self_attn.q_proj", heads}, {"self_attn.k_proj", heads}, {"self_attn.v_proj", heads}},
      hidden, /*bias=*/true, deviation);
  spec.AddRowLinear("self_attn.out_proj", heads, hidden, /*bias=*/true, deviation);
  spec.AddNorm("layer_norm2", hidden, /*bias=*/true);
  spec.AddColumnLinears({{"mlp.fc1", inner}}, hidden, /*bias=*/true, deviation);
  spec.AddRowLinear("mlp.fc2", inner, hidden, /*bias=*/true, deviation);
}

LayerSpec VisionBlockSpec(const VisionConfig& vision, int64_t index, int ranks) {
  const int64_t hidden = vision.hidden_size, heads = vision.num_attention_heads;
  LayerSpec spec;
  spec.kind = "vision_block";
  spec.title = "vision blocks";
  spec.shape = fmt::format("hidden {}, inner {}, heads {}, rows {}, {}", hidden,
                           vision.intermediate_size, heads, vision.rows(), vision.hidden_act);
  spec.name = fmt::format("vision_tower.encoder.layers.{}", index);
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
  const auto part_heads = static_cast<double>(query / (hidden / heads));
  HalfCost &attention = spec.attention, &mlp = spec.mlp;
  attention.products = {{PerRow::Patches(1), 3 * query, hidden},
                        {PerRow::Patches(1), hidden, query}};
  // Scores and weighted values: two products of rows x rows x query.
  attention.attention_flops_per_patch_pair = 4 * q;
  attention.attention_heads = part_heads;
  attention.keys_values = PerRow::Patches(2 * q);
  attention.passes = {{PassKind::kLayerNorm, PerRow::Patches(h), /*whole=*/true},
                      {PassKind::kResidual, PerRow::Patches(h), /*whole=*/true}};
  mlp.passes = attention.passes;
  attention.passes.push_back({PassKind::kQueries, PerRow::Patches(q)});
  if (ranks > 1) {
    attention.all_reduces = attention.gradient_all_reduces = {{PerRow::Patches(h)}};
    mlp.all_reduces = mlp.gradient_all_reduces = attention.all_reduces;
  }
  attention.input = PerRow::Patches(h);
  // q, k, v and the result; the output of the norm is saved for weight gradients only.
  attention.saved = PerRow::Patches(4 * q);
  attention.saved_weights = attention.saved_whole = attention.norms = PerRow::Patches(h);
  attention.saved_fp32 = PerRow::Patches(2 + part_heads);
  attention.workspace = PerRow::Patches(h + 4 * q);

  mlp.products = {{PerRow::Patches(1), inner, hidden}, {PerRow::Patches(1), hidden, inner}};
  mlp.passes.push_back({PassKind::kGelu, PerRow::Patches(i)});
  mlp.input = PerRow::Patches(h);
  mlp.saved = PerRow::Patches(i);
  mlp.saved_weights = PerRow::Patches(h + i);
  mlp.saved_whole = mlp.norms = PerRow::Patches(h);
  mlp.activations = PerRow::Patches(i);
  mlp.saved_fp32 = PerRow::Patches(2);
  mlp.workspace = PerRow::Patches(2 * h + i);
  return spec;
}

// The blocks behind the one whose output is used, the last norm and SigLIP's pooling head.
LayerSpec UnusedSpec(const VisionConfig& vision) {
  const int64_t hidden = vision.hidden_size, inner = vision.intermediate_size;
  const double deviation = vision.initializer_range;
  LayerSpec spec;
  spec.kind = "unused_encoder";
  spec.title = "unused vision weights";
  spec.shape =
      fmt::format("hidden {}, blocks {}", hidden, vision.num_hidden_layers - vision.feature_layers);
  spec.name = "vision_tower";
  spec.component = Component::kEncoder;
  spec.unused = true;
  for (int64_t i = vision.feature_layers; i < vision.num_hidden_layers; ++i) {
    for (TensorSpec& tensor : VisionBlockSpec(vision, i, /*ranks=*/1).parameters) {
      tensor.split = {};  // whole on every tensor-parallel rank, as none computes with it
      spec.parameters.push_back(std::move(tensor));
    }
  }
  spec.AddNorm("post_layernorm", hidden, /*bias=*/true);
  if (vision.pooling_head) {
    spec.AddTensor("head.probe", {1, 1, hidden}, Init::Normal(deviation));
    spec.AddTensor("head.attention.in_proj_weight", {3 * hidden, hidden}, Init::Normal(deviation));
    spec.AddTensor("head.attention.in_proj_bias", {3 * hidden}, Init::Zeros());
    spec.AddNorm("head.layernorm", hidden, /*bias=*/true);
    const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
      spec.AddTensor(name + ".weight", {out, in}, Init::Normal(deviation));
      spec.AddTensor(name + ".bias", {out}, Init::Zeros());
    };
    linear("head.attention.out_proj", hidden, hidden);
    linear("head.mlp.fc1", hidden, inner);
    linear("head.mlp.fc2", inner, hidden);
  }
  spec.input = spec.output = EncoderRows(vision);
  return spec;
}

// Of a projector of the widths `i` and `o`, `p` of them on a rank, that is given all rows of the
// encoder and whose results are then taken and blended, without its products.
HalfCost CostsOfAllRows(double i, double o, double p, int ranks) {
  HalfCost mlp;
  mlp.passes = {{PassKind::kGelu, PerRow::Patches(p)},
                // One row a token, the four of a blend, and the vectors put among them.
                {PassKind::kCopy, PerRow::ImageTokens(6 * o), /*whole=*/true}};
  if (ranks > 1) {
    mlp.all_reduces = {{PerRow::Patches(o)}};
    mlp.gradient_all_reduces = {{PerRow::Patches(i)}};
  }
  mlp.input = PerRow::Patches(i);
  mlp.saved = PerRow::Patches(p);  // before GELU
  mlp.saved_weights = PerRow::Patches(p);
  // The sum of gradients of the rows taken and what is added to it.
  mlp.workspace = PerRow::Patches(i + 2 * o);
  return mlp;
}

LayerSpec ProjectorSpec(const ModelConfig& config, int ranks) {
  const int64_t in = config.vision.hidden_size, out = config.text.hidden_size;
  const double deviation = config.text.initializer_range;
  const Split by_width = Split::Width(out, "columns of the projector");
  LayerSpec spec;
  spec.kind = "projector";
  spec.title = "projector";
  const bool any_resolution = !config.image_grid_pinpoints.empty();
  spec.shape = fmt::format("in {}, out {}, rows {}, no norm{}", in, out, config.tokens_per_tile(),
                           any_resolution ? ", newlines" : "");
  spec.name = "multi_modal_projector";
  spec.component = Component::kConnector;
  spec.AddColumnLinears({{"linear_1", by_width}}, in, config.projector_bias, deviation);
  spec.AddRowLinear("linear_2", by_width, out, config.projector_bias, deviation);
  if (any_resolution) {  // beside the projector in files
    TensorSpec newline;
    newline.name = kImageNewline;
    newline.shape = {out};
    newline.init = Init::Normal(1 / std::sqrt(static_cast<double>(out)));
    spec.parameters.push_back(newline);
  }
  spec.input = EncoderRows(config.vision);
  spec.output = {RowKind::kImageTokens, out};

  const int64_t part = by_width.Largest(ranks);
  const double i = static_cast<double>(in), o = static_cast<double>(out);
  const double p = static_cast<double>(part);
  HalfCost& mlp = spec.mlp;
  if (config.anyres_max_tiles > 0) {
    mlp = CostsOfAllRows(i, o, p, ranks);
    mlp.products = {{PerRow::Patches(1), part, in}, {PerRow::Patches(1), out, part}};
    return spec;
  }
  mlp.products = {{PerRow::ImageTokens(1), part, in}, {PerRow::ImageTokens(1), out, part}};
  mlp.passes = {{PassKind::kGelu, PerRow::ImageTokens(p)}};
  // Rows that are taken out of the encoder's, and given their vectors behind the lines of patches.
  const bool copies = config.vision.class_token || any_resolution;
  if (copies) mlp.passes.push_back({PassKind::kCopy, PerRow::ImageTokens(i), /*whole=*/true});
  if (any_resolution) {
    mlp.passes.push_back({PassKind::kCopy, PerRow::ImageTokens(o), /*whole=*/true});
  }
  if (ranks > 1) {
    mlp.all_reduces = {{PerRow::ImageTokens(o)}};
    mlp.gradient_all_reduces = {{PerRow::ImageTokens(i)}};
  }
  mlp.input = PerRow::Patches(i);
  mlp.saved = PerRow::ImageTokens(p);  // before GELU
  // The rows without the class token, a copy; without one they are the input itself.
  mlp.saved_weights = PerRow::ImageTokens(copies ? i + p : p);
  mlp.workspace = PerRow::ImageTokens(i + o);
  return spec;
}

}  // namespace

std::vector<LayerSpec> LlavaEncoderSpecs(const ModelConfig& config, int tensor_ranks) {
  std::vector<LayerSpec> specs = {PatchEmbeddingSpec(config.vision)};
  for (int64_t i = 0; i < config.vision.feature_layers; ++i) {
    specs.push_back(VisionBlockSpec(config.vision, i, tensor_ranks));
  }
  specs.push_back(UnusedSpec(config.vision));
  specs.push_back(ProjectorSpec(config, tensor_ranks));
  return specs;
}

}  // namespace equipoise
