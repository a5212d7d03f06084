#include "models/families/qwen2_vl/encoder_specs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

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
  if (vision.num_position_embeddings == 0) return spec;
  spec.shape += fmt::format(", {} positions", vision.num_position_embeddings);
  spec.AddTensor("proj.bias", {hidden}, Init::Zeros());
  spec.parameters.push_back({"visual.pos_embed.weight",
                             {vision.num_position_embeddings, hidden},
                             Init::Normal(vision.initializer_range),
                             0,
                             {}});
  spec.mlp.passes.push_back({PassKind::kEmbedding, PerRow::Patches(4 * h), /*whole=*/true});
  spec.mlp.passes.push_back({PassKind::kResidual, PerRow::Patches(h), /*whole=*/true});
  spec.mlp.workspace_fp32 = PerRow::Patches(2 * h);
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
  const MlpNames mlp = MlpNamesOf(vision);
  std::vector<std::pair<std::string, Split>> columns;
  for (const std::string& name : mlp.inner) columns.emplace_back(name, inner);
  spec.AddColumnLinears(columns, hidden, /*bias=*/true, deviation);
  spec.AddRowLinear(mlp.outer, inner, hidden, /*bias=*/true, deviation);
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
  attention.saved_weights = attention.saved_whole = attention.norms = PerRow::Patches(h);
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
  mlp.saved_whole = mlp.norms = PerRow::Patches(h);
  mlp.activations = PerRow::Patches(i);
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
  for (const int64_t feature : vision.deepstack_visual_indexes) {
    if (feature < index) ++spec.input.features;
    if (feature <= index) ++spec.output.features;
  }
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

// Of mergers that run one after the other; `part`: columns between the two linear layers on this
// rank.
void AddMergerCosts(const ModelConfig& config, const std::vector<MergerNames>& mergers,
                    int64_t part, int ranks, LayerSpec& spec) {
  const VisionConfig& vision = config.vision;
  const int64_t in = vision.hidden_size * config.shuffle() * config.shuffle();
  const int64_t out = config.text.hidden_size;
  const double i = static_cast<double>(in), o = static_cast<double>(out);
  const double p = static_cast<double>(part), n = static_cast<double>(mergers.size());
  HalfCost& mlp = spec.mlp;
  for (const MergerNames& names : mergers) {
    mlp.products.push_back({PerRow::ImageTokens(1), part, in});
    mlp.products.push_back({PerRow::ImageTokens(1), out, part});
    mlp.passes.push_back(NormPass(vision));
    mlp.passes.push_back({PassKind::kGelu, PerRow::ImageTokens(p)});
    if (ranks > 1) {
      mlp.all_reduces.push_back({PerRow::ImageTokens(o)});
      mlp.gradient_all_reduces.push_back({PerRow::ImageTokens(i)});
    }
    const double statistics = Statistics(vision);
    (names.of_squares ? mlp.saved_fp32.per_image_token : mlp.saved_fp32.per_patch) += statistics;
  }
  if (vision.window_size > 0) {
    mlp.passes.push_back({PassKind::kCopy, PerRow::ImageTokens(o), /*whole=*/true});
  }
  if (spec.takes_features) {  // rows are joined in front of the mergers and behind them
    mlp.passes.push_back({PassKind::kCopy, PerRow::ImageTokens(n * (i + o)), /*whole=*/true});
  }
  mlp.input = PerRow::Patches(n * static_cast<double>(vision.hidden_size));
  mlp.saved = PerRow::ImageTokens(n * p);                // before GELU
  mlp.saved_weights = PerRow::ImageTokens(n * (i + p));  // the norm's output, GELU's
  // One merger at a time, and in the end the gradients of all their inputs, joined.
  mlp.workspace = PerRow::ImageTokens(n == 1 ? i + o : 2 * n * i + o);
}

LayerSpec MergerSpec(const ModelConfig& config, int ranks) {
  const VisionConfig& vision = config.vision;
  const int64_t square = config.shuffle() * config.shuffle();
  const int64_t in = vision.hidden_size * square, out = config.text.hidden_size;
  const double deviation = vision.initializer_range;
  const Split by_width = Split::Width(in, "columns of the projector");
  const std::vector<MergerNames> mergers = MergersOf(vision);
  const int64_t features = std::ssize(mergers) - 1;
  LayerSpec spec;
  spec.kind = "projector";
  spec.title = "projector";
  spec.shape = fmt::format("in {}, out {}, {} patches, {}", in, out, square, vision.norm_type);
  if (features > 0) spec.shape += fmt::format(", {} features", features);
  spec.name = vision.num_position_embeddings > 0 ? "visual" : "visual.merger";
  spec.component = Component::kConnector;
  for (const MergerNames& names : mergers) {
    spec.AddNorm(names.norm, names.of_squares ? in : vision.hidden_size, HasLayerNorm(vision));
    spec.AddColumnLinears({{names.linear_1, by_width}}, in, /*bias=*/true, deviation);
    spec.AddRowLinear(names.linear_2, by_width, out, /*bias=*/true, deviation);
  }
  spec.takes_features = features > 0;
  spec.input = EncoderRows(vision);
  spec.output = {RowKind::kImageTokens, out};
  spec.input.features = spec.output.features = features;
  AddMergerCosts(config, mergers, by_width.Largest(ranks), ranks, spec);
  return spec;
}

}  // namespace

bool HasWindows(const VisionConfig& vision, int64_t block) {
  const std::vector<int64_t>& full = vision.full_attention;
  return vision.window_size > 0 && std::find(full.begin(), full.end(), block) == full.end();
}

int64_t PositionSide(const VisionConfig& vision) {
  return std::llround(std::sqrt(static_cast<double>(vision.num_position_embeddings)));
}

MlpNames MlpNamesOf(const VisionConfig& vision) {
  if (vision.hidden_act == "silu") return {{"mlp.gate_proj", "mlp.up_proj"}, "mlp.down_proj"};
  if (vision.num_position_embeddings == 0) return {{"mlp.fc1"}, "mlp.fc2"};
  return {{"mlp.linear_fc1"}, "mlp.linear_fc2"};
}

std::vector<MergerNames> MergersOf(const VisionConfig& vision) {
  if (vision.num_position_embeddings == 0) return {{"ln_q", "mlp.0", "mlp.2"}};
  const auto named = [](const std::string& merger, bool of_squares) -> MergerNames {
    return {merger + ".norm", merger + ".linear_fc1", merger + ".linear_fc2", of_squares};
  };
  std::vector<MergerNames> mergers = {named("merger", false)};
  for (size_t i = 0; i < vision.deepstack_visual_indexes.size(); ++i) {
    mergers.push_back(named(fmt::format("deepstack_merger_list.{}", i), true));
  }
  return mergers;
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
