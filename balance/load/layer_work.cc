#include "balance/load/layer_work.h"

#include <algorithm>

namespace equipoise {
namespace {

// The largest part when `ranks` share out `units`.
int64_t LargestPart(int64_t units, int64_t ranks) { return (units + ranks - 1) / ranks; }

PerRow Tiles(double elements) { return {elements, 0}; }
PerRow Tokens(double elements) { return {0, elements}; }
PerRow Targets(double elements) { return {0, 0, elements}; }

LayerWork PatchEmbedding(const VisionConfig& vision) {
  const int64_t hidden = vision.hidden_size, patches = vision.patches();
  const int64_t patch = vision.num_channels * vision.patch_size * vision.patch_size;
  const double rows = static_cast<double>(patches), h = static_cast<double>(hidden);
  LayerWork work;
  work.has_input = false;
  work.parameters = patch * hidden + (patches + 3) * hidden;
  work.mlp.products = {{Tiles(rows), hidden, patch}};
  work.mlp.passed = Tiles(rows * (2.0 * static_cast<double>(patch) + 3 * h));
  work.mlp.kernels = 4;
  work.mlp.kept_weights = Tiles(rows * static_cast<double>(patch));
  work.mlp.work = Tiles((3 * rows + 2) * h);
  return work;
}

LayerWork VisionBlock(const VisionConfig& vision, int64_t ranks) {
  const int64_t hidden = vision.hidden_size, heads = vision.num_attention_heads;
  const int64_t query = LargestPart(heads, ranks) * (hidden / heads);
  const int64_t inner = LargestPart(vision.intermediate_size, ranks);
  const double rows = static_cast<double>(vision.patches() + 1);
  const double h = static_cast<double>(hidden), q = static_cast<double>(query);
  const double i = static_cast<double>(inner), norm_bytes = vision.norm_type == "rms_norm" ? 1 : 2;
  const double part_heads = static_cast<double>(LargestPart(heads, ranks));
  LayerWork work;
  work.has_halves = true;
  const int64_t norms = static_cast<int64_t>(norm_bytes) * 2 * hidden;
  work.parameters = 4 * hidden * query + 2 * hidden * inner + hidden + inner + hidden + norms +
                    2 * hidden + (vision.attention_bias ? 3 * query : 0) +
                    (vision.use_qk_norm ? 2 * query : 0);

  HalfWork &attention = work.attention, &mlp = work.mlp;
  attention.products = {{Tiles(rows), 3 * query, hidden}, {Tiles(rows), hidden, query}};
  attention.attention_flops_per_tile = 4 * rows * rows * q;
  attention.passed = Tiles(rows * (5 * h + (vision.use_qk_norm ? 4 * q : 0)));
  attention.kernels = vision.use_qk_norm ? 5 : 3;
  if (ranks > 1) {
    attention.sums = attention.gradient_sums = {{Tiles(rows * h)}};
    mlp.sums = mlp.gradient_sums = attention.sums;
    if (vision.use_qk_norm) {  // squares of q and k by row
      attention.sums.push_back({Tiles(2 * rows), /*fp32=*/true});
      attention.gradient_sums.push_back(attention.sums.back());
    }
  }
  attention.input = Tiles(rows * h);
  // q, k, v, result; normalised q and k. Norm and output are kept for weights alone.
  attention.kept = Tiles(rows * (4 * q + (vision.use_qk_norm ? 2 * q : 0)));
  attention.kept_weights = Tiles(rows * 2 * h);
  attention.kept_fp32 = Tiles(rows * (norm_bytes + part_heads));
  attention.work = Tiles(rows * (h + 4 * q));

  mlp.products = {{Tiles(rows), inner, hidden}, {Tiles(rows), hidden, inner}};
  mlp.passed = Tiles(rows * (5 * h + 2 * i));
  mlp.kernels = 3;
  mlp.input = Tiles(rows * h);
  mlp.kept = Tiles(rows * i);
  mlp.kept_weights = Tiles(rows * (2 * h + i));
  mlp.kept_fp32 = Tiles(rows * norm_bytes);
  mlp.work = Tiles(rows * (2 * h + i));
  return work;
}

LayerWork Projector(const ModelConfig& config, int64_t ranks) {
  const int64_t in = config.vision.hidden_size * config.shuffle() * config.shuffle();
  const int64_t out = config.text.hidden_size, part = LargestPart(out, ranks);
  const double rows = static_cast<double>(config.tokens_per_tile());
  const double i = static_cast<double>(in), o = static_cast<double>(out);
  const double p = static_cast<double>(part);
  LayerWork work;
  work.parameters = 2 * in + in * part + part + out * part + out;
  HalfWork& mlp = work.mlp;
  mlp.products = {{Tiles(rows), part, in}, {Tiles(rows), out, part}};
  mlp.passed = Tiles(rows * (4 * i + 2 * p));
  mlp.kernels = 3;
  if (ranks > 1) {
    mlp.sums = {{Tiles(rows * o)}};
    mlp.gradient_sums = {{Tiles(rows * i)}};
  }
  const double in_rows = static_cast<double>(config.vision.patches() + 1);
  mlp.input = Tiles(in_rows * static_cast<double>(config.vision.hidden_size));
  mlp.kept = Tiles(rows * (i + p));  // merged squares, before GELU
  mlp.kept_weights = Tiles(rows * (i + p));
  mlp.kept_fp32 = Tiles(rows * 2);
  mlp.work = Tiles(rows * (i + o));
  return work;
}

LayerWork TokenEmbedding(const ModelConfig& config, int64_t ranks) {
  const TextConfig& text = config.text;
  const double h = static_cast<double>(text.hidden_size);
  LayerWork work;
  work.parameters = LargestPart(text.vocab_size, ranks) * text.hidden_size;
  work.mlp.passed = Tokens(2 * h);
  work.mlp.kernels = 3;
  if (ranks > 1) work.mlp.sums = {{Tokens(h)}};
  // The projector's output, which is spliced in.
  if (config.has_vision) work.mlp.input = Tiles(static_cast<double>(config.tokens_per_tile()) * h);
  work.mlp.work = Tokens(2 * h);
  work.mlp.work_fp32 = Tokens(h);
  return work;
}

LayerWork DecoderBlock(const TextConfig& text, int64_t ranks) {
  const int64_t hidden = text.hidden_size, head_dim = text.head_dim;
  const int64_t heads = LargestPart(text.num_attention_heads, ranks);
  const int64_t query = heads * head_dim;
  const int64_t key = LargestPart(text.num_key_value_heads, ranks) * head_dim;
  const int64_t inner = LargestPart(text.intermediate_size, ranks);
  const double h = static_cast<double>(hidden), q = static_cast<double>(query);
  const double k = static_cast<double>(key), i = static_cast<double>(inner);
  const bool output_bias = text.attention_bias && text.model_type != "qwen2";
  LayerWork work;
  work.has_halves = true;
  work.parameters = hidden * (2 * query + 2 * key + 3 * inner) + 2 * hidden +
                    (text.attention_bias ? query + 2 * key : 0) + (output_bias ? hidden : 0) +
                    (text.mlp_bias ? 2 * inner + hidden : 0);

  HalfWork &attention = work.attention, &mlp = work.mlp;
  attention.products = {{Tokens(1), query + 2 * key, hidden}, {Tokens(1), hidden, query}};
  attention.attention_flops_per_pair = 4 * q;
  attention.passed = Tokens(5 * h + 2 * (q + k));
  attention.kernels = 5;
  if (ranks > 1) {
    attention.sums = attention.gradient_sums = {{Tokens(h)}};
    mlp.sums = mlp.gradient_sums = attention.sums;
    if (text.num_key_value_heads < ranks) {  // each key head's gradients come from several ranks
      const auto all_keys = static_cast<double>(text.num_key_value_heads * head_dim);
      attention.gradient_sums.push_back({Tokens(2 * all_keys)});
    }
  }
  attention.input = Tokens(h);
  // q, k, v as they come from one product, q and k rotated, result.
  attention.kept = Tokens(3 * q + 3 * k);
  attention.kept_weights = Tokens(h);
  attention.kept_fp32 = Tokens(1 + static_cast<double>(heads));
  attention.work = Tokens(h + 2 * q + 4 * k);

  mlp.products = {{Tokens(1), 2 * inner, hidden}, {Tokens(1), hidden, inner}};
  mlp.passed = Tokens(5 * h + 3 * i);
  mlp.kernels = 3;
  mlp.input = Tokens(h);
  mlp.kept = Tokens(2 * i);
  mlp.kept_weights = Tokens(h + i);
  mlp.kept_fp32 = Tokens(1);
  mlp.work = Tokens(2 * h + 3 * i);
  return work;
}

LayerWork Head(const TextConfig& text, int64_t ranks) {
  const int64_t hidden = text.hidden_size, vocabulary = LargestPart(text.vocab_size, ranks);
  const double h = static_cast<double>(hidden), v = static_cast<double>(vocabulary);
  LayerWork work;
  work.gradient_with_loss = true;
  work.parameters = hidden + (text.tie_word_embeddings ? 0 : vocabulary * hidden);
  HalfWork& mlp = work.mlp;
  // All but the rows without a target, which get a gradient of zeros.
  mlp.products = {{Targets(1), vocabulary, hidden}};
  mlp.passed = {0, h, 2 * h + 8 * v};
  mlp.kernels = 10;
  if (ranks > 1) {  // largest logits, exponentials and the targets' logits, the input's gradient
    mlp.sums = {{Targets(1), /*fp32=*/true}, {Targets(2), /*fp32=*/true}, {Targets(h)}};
  }
  mlp.input = Tokens(h);
  mlp.kept = Targets(2 * h);  // the rows, their gradient
  mlp.kept_fp32 = Targets(1);
  mlp.work = {0, h, h};  // the gradient of the rows, then of the input; logits count beside it
  return work;
}

}  // namespace

LayerWork WorkOfLayer(const ModelConfig& config, LayerKind kind, int tensor) {
  switch (kind) {
    case LayerKind::kPatchEmbedding:
      return PatchEmbedding(config.vision);
    case LayerKind::kVisionBlock:
      return VisionBlock(config.vision, tensor);
    case LayerKind::kProjector:
      return Projector(config, tensor);
    case LayerKind::kTokenEmbedding:
      return TokenEmbedding(config, tensor);
    case LayerKind::kDecoderBlock:
      return DecoderBlock(config.text, tensor);
    default:
      return Head(config.text, tensor);
  }
}

}  // namespace equipoise
