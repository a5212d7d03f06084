#include "models/families/text_specs.h"

#include <fmt/format.h>

namespace equipoise {
namespace {

std::string VocabularyShape(const TextConfig& text) {
  return fmt::format("hidden {}, vocabulary {}{}", text.hidden_size, text.vocab_size,
                     text.tie_word_embeddings ? ", tied" : "");
}

// The weight of the embedding or of the head, [vocabulary, hidden].
TensorSpec VocabularyTensor(const TextConfig& text, const std::string& name) {
  return {name,
          {text.vocab_size, text.hidden_size},
          Init::Normal(text.initializer_range),
          0,
          Split::Units(text.vocab_size, "rows of the vocabulary")};
}

// The all-reduce of a number of columns, which sequence parallelism does without.
TensorAllReduce OfRows(double columns) {
  TensorAllReduce sum = {PerRow::Tokens(columns)};
  sum.of_rows = true;
  return sum;
}

TensorSpec EmbeddingTensor(const TextConfig& text, const std::string& model) {
  TensorSpec tensor = VocabularyTensor(text, model + "embed_tokens.weight");
  tensor.init.zero_row = text.pad_token_id;
  return tensor;
}

LayerSpec TokenEmbeddingSpec(const TextConfig& text, const std::string& model, int ranks) {
  const double h = static_cast<double>(text.hidden_size);
  LayerSpec spec;
  spec.kind = kTokenEmbedding;
  spec.title = "embedding";
  spec.shape = VocabularyShape(text);
  spec.name = model + "embed_tokens";
  spec.parameters = {EmbeddingTensor(text, model)};
  spec.input = {RowKind::kImageTokens, text.hidden_size};
  spec.output = {RowKind::kTokens, text.hidden_size, 0, /*shared=*/true};
  spec.input.features = spec.output.features = text.deepstack_layers;
  spec.defers_weights = false;
  spec.mlp.passes = {{PassKind::kEmbedding, PerRow::Tokens(h), /*whole=*/true}};
  if (ranks > 1) {
    spec.mlp.all_reduces = {OfRows(h)};
    spec.mlp.row_exchanges = spec.mlp.gradient_row_exchanges = {PerRow::Tokens(h)};
  }
  // The projector's output, which is spliced in, with the features behind it.
  spec.mlp.input = PerRow::ImageTokens(static_cast<double>(1 + text.deepstack_layers) * h);
  spec.mlp.workspace = PerRow::Tokens(2 * h);
  spec.mlp.workspace_fp32 = PerRow::Tokens(h);
  return spec;
}

void AddBlockParameters(const TextConfig& text, const Split& heads, const Split& inner,
                        LayerSpec& spec) {
  const int64_t hidden = text.hidden_size;
  const double deviation = text.initializer_range;
  spec.AddNorm("input_layernorm", hidden, /*bias=*/false);
  spec.AddColumnLinears({{"self_attn.q_proj", heads},
                         {"self_attn.k_proj", heads.Keys()},
                         {"self_attn.v_proj", heads.Keys()}},
                        hidden, text.attention_bias, deviation);
  if (text.use_qk_norm) {
    spec.AddNorm("self_attn.q_norm", text.head_dim, /*bias=*/false);
    spec.AddNorm("self_attn.k_norm", text.head_dim, /*bias=*/false);
  }
  spec.AddRowLinear("self_attn.o_proj", heads, hidden, text.attention_output_bias, deviation);
  spec.AddNorm("post_attention_layernorm", hidden, /*bias=*/false);
  spec.AddColumnLinears({{"mlp.gate_proj", inner}, {"mlp.up_proj", inner}}, hidden, text.mlp_bias,
                        deviation);
  spec.AddRowLinear("mlp.down_proj", inner, hidden, text.mlp_bias, deviation);
}

LayerSpec DecoderBlockSpec(const TextConfig& text, const std::string& model, int64_t index,
                           int ranks) {
  const int64_t hidden = text.hidden_size, head_dim = text.head_dim;
  LayerSpec spec;
  spec.kind = kDecoderBlock;
  spec.title = "decoder blocks";
  spec.shape = fmt::format("hidden {}, inner {}, heads {}, kv heads {}, head_dim {}{}{}{}", hidden,
                           text.intermediate_size, text.num_attention_heads,
                           text.num_key_value_heads, head_dim, text.attention_bias ? ", bias" : "",
                           text.use_qk_norm ? ", qk_norm" : "", text.mlp_bias ? ", mlp bias" : "");
  spec.name = fmt::format("{}layers.{}", model, index);
  spec.index = index;
  const Split by_head = Split::Heads(text.num_attention_heads, text.num_key_value_heads, head_dim,
                                     "attention heads of the language model");
  const Split by_width =
      Split::Width(text.intermediate_size, "columns of the language model's MLP");
  AddBlockParameters(text, by_head, by_width, spec);
  spec.input = spec.output = {RowKind::kTokens, hidden, 0, /*shared=*/true};
  spec.has_halves = true;
  const bool adds_feature = index < text.deepstack_layers;
  if (adds_feature) {
    spec.shape += ", a feature added";
    spec.input.features = text.deepstack_layers - index;
    spec.output.features = spec.input.features - 1;
  }

  const int64_t query = by_head.Largest(ranks), key = by_head.Keys().Largest(ranks);
  const int64_t inner = by_width.Largest(ranks);
  const double h = static_cast<double>(hidden), q = static_cast<double>(query);
  const double k = static_cast<double>(key), i = static_cast<double>(inner);
  HalfCost &attention = spec.attention, &mlp = spec.mlp;
  attention.products = {{PerRow::Tokens(1), query + 2 * key, hidden},
                        {PerRow::Tokens(1), hidden, query}};
  attention.attention_flops_per_pair = 4 * q;
  attention.attention_heads = static_cast<double>(query / head_dim);
  attention.keys_values = PerRow::Tokens(2 * k);
  attention.passes = {{PassKind::kNorm, PerRow::Tokens(h), /*whole=*/true},
                      {PassKind::kRotary, PerRow::Tokens(q + k)},
                      {PassKind::kQueries, PerRow::Tokens(q)},
                      {PassKind::kResidual, PerRow::Tokens(h), /*whole=*/true}};
  if (text.use_qk_norm) attention.passes.push_back({PassKind::kNorm, PerRow::Tokens(q + k)});
  if (ranks > 1) {
    attention.all_reduces = attention.gradient_all_reduces = {OfRows(h)};
    attention.weight_row_exchanges = {PerRow::Tokens(h)};
    attention.row_exchanges =
        attention.gradient_row_exchanges = {PerRow::Tokens(h), PerRow::Tokens(h)};
    mlp.all_reduces = mlp.gradient_all_reduces = attention.all_reduces;
    mlp.row_exchanges = mlp.gradient_row_exchanges = attention.row_exchanges;
    mlp.weight_row_exchanges = attention.weight_row_exchanges;
    if (text.num_key_value_heads < ranks) {  // each key head's gradients come from several ranks
      const auto all_keys = static_cast<double>(text.num_key_value_heads * head_dim);
      attention.gradient_all_reduces.push_back({PerRow::Tokens(2 * all_keys)});
    }
  }
  if (ranks > 1 && text.use_qk_norm) {  // gradients of the weights that the heads share
    const TensorAllReduce weight = {{}, /*fp32=*/true, static_cast<double>(head_dim)};
    attention.gradient_all_reduces.insert(attention.gradient_all_reduces.end(), 2, weight);
  }
  attention.input = PerRow::Tokens(h);
  const int64_t query_heads = query / head_dim, key_heads = key / head_dim;
  // With norms of heads, copies of q and k, but for a single head: its rows are taken as they lie.
  const double copied = text.use_qk_norm ? (query_heads > 1 ? q : 0) + (key_heads > 1 ? k : 0) : 0;
  // q, k and v (one product), q and k rotated, the result.
  attention.saved = PerRow::Tokens(3 * (q + k) + copied);
  attention.saved_weights = attention.saved_whole = attention.norms = PerRow::Tokens(h);
  const auto head_rows = static_cast<double>(query_heads);
  const double norm_rows = text.use_qk_norm ? static_cast<double>(query_heads + key_heads) : 0;
  attention.saved_fp32 = PerRow::Tokens(1 + head_rows + norm_rows);
  attention.workspace = PerRow::Tokens(h + 2 * q + 4 * k);

  mlp.products = {{PerRow::Tokens(1), 2 * inner, hidden}, {PerRow::Tokens(1), hidden, inner}};
  mlp.passes = {{PassKind::kNorm, PerRow::Tokens(h), /*whole=*/true},
                {PassKind::kGatedUnit, PerRow::Tokens(i)},
                {PassKind::kResidual, PerRow::Tokens(h), /*whole=*/true}};
  mlp.input = PerRow::Tokens(h);
  mlp.saved = PerRow::Tokens(2 * i);
  mlp.saved_weights = PerRow::Tokens(h + i);
  mlp.saved_whole = mlp.norms = PerRow::Tokens(h);
  mlp.activations = PerRow::Tokens(i);
  mlp.saved_fp32 = PerRow::Tokens(1);
  mlp.workspace = PerRow::Tokens(2 * h + 3 * i);
  if (adds_feature) {
    mlp.passes.push_back({PassKind::kResidual, PerRow::ImageTokens(h), /*whole=*/true});
    if (ranks > 1) {  // the feature's gradient, of which each rank has the part of its rows
      TensorAllReduce sum = {PerRow::ImageTokens(h)};
      sum.of_shares = true;
      mlp.gradient_all_reduces.push_back(sum);
    }
  }
  return spec;
}

LayerSpec HeadSpec(const TextConfig& text, const std::string& prefix, int ranks) {
  const int64_t hidden = text.hidden_size;
  LayerSpec spec;
  spec.kind = kHead;
  spec.title = "head";
  spec.shape = VocabularyShape(text);
  spec.name = prefix + "lm_head";
  spec.parameters = {{prefix + "model.norm.weight", {hidden}, Init::Ones(), 0, {}}};
  const TensorSpec weight = VocabularyTensor(text, spec.name + ".weight");
  if (text.tie_word_embeddings) {
    spec.tied = EmbeddingTensor(text, prefix + "model.");
  } else {
    spec.parameters.push_back(weight);
  }
  spec.input = {RowKind::kTokens, hidden, 0, /*shared=*/true};
  spec.gradient_with_loss = true;
  spec.defers_weights = false;

  const int64_t vocabulary = weight.split.Largest(ranks);
  const double h = static_cast<double>(hidden), v = static_cast<double>(vocabulary);
  HalfCost& mlp = spec.mlp;
  // Rows with a target only; the gradient of the others is zero.
  mlp.products = {{PerRow::Targets(1), vocabulary, hidden}};
  mlp.passes = {{PassKind::kNorm, PerRow::Targets(h), /*whole=*/true},
                {PassKind::kCopy, PerRow::Targets(h), /*whole=*/true},
                {PassKind::kLogits, PerRow::Targets(v)}};
  if (ranks > 1) {  // largest logits, exponentials and the targets' logits, the input's gradient
    mlp.all_reduces = {{PerRow::Targets(1), /*fp32=*/true},
                       {PerRow::Targets(2), /*fp32=*/true},
                       {PerRow::Targets(h)}};
    mlp.row_exchanges = {PerRow::Tokens(h)};
  }
  mlp.input = PerRow::Tokens(h);
  mlp.saved = PerRow::Targets(2 * h);  // the rows, their gradient
  mlp.saved_fp32 = PerRow::Targets(1);
  // The gradient of the rows, then of the input; logits are counted separately.
  mlp.workspace = {0, 0, h, h};
  return spec;
}

}  // namespace

std::vector<LayerSpec> TextSpecs(const TextConfig& text, const std::string& prefix,
                                 int tensor_ranks) {
  const std::string model = prefix + "model.";
  std::vector<LayerSpec> specs = {TokenEmbeddingSpec(text, model, tensor_ranks)};
  for (int64_t i = 0; i < text.num_hidden_layers; ++i) {
    specs.push_back(DecoderBlockSpec(text, model, i, tensor_ranks));
  }
  specs.push_back(HeadSpec(text, prefix, tensor_ranks));
  return specs;
}

}  // namespace equipoise
