#include "balance/load/layer_shape.h"

#include "configs/base/error.h"

namespace equipoise {
namespace {

using internal::Join;

std::string VisionShape(const VisionConfig& vision) {
  return Join("hidden ", vision.hidden_size, ", inner ", vision.intermediate_size, ", heads ",
              vision.num_attention_heads, ", rows ", vision.patches() + 1, ", ", vision.norm_type,
              vision.use_qk_norm ? ", qk_norm" : "", vision.attention_bias ? ", bias" : "");
}

std::string DecoderShape(const TextConfig& text) {
  return Join("hidden ", text.hidden_size, ", inner ", text.intermediate_size, ", heads ",
              text.num_attention_heads, ", kv heads ", text.num_key_value_heads, ", head_dim ",
              text.head_dim, text.attention_bias ? ", bias" : "",
              text.mlp_bias ? ", mlp bias" : "");
}

}  // namespace

std::string LayerKindName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kPatchEmbedding:
      return "patch_embedding";
    case LayerKind::kVisionBlock:
      return "vision_block";
    case LayerKind::kProjector:
      return "projector";
    case LayerKind::kTokenEmbedding:
      return "token_embedding";
    case LayerKind::kDecoderBlock:
      return "decoder_block";
    case LayerKind::kHead:
      return "head";
  }
  return "";
}

std::string LayerShape(const ModelConfig& config, LayerKind kind) {
  const VisionConfig& vision = config.vision;
  const TextConfig& text = config.text;
  switch (kind) {
    case LayerKind::kPatchEmbedding:
      return Join("hidden ", vision.hidden_size, ", patches ", vision.patches(), ", patch ",
                  vision.num_channels, " x ", vision.patch_size, " x ", vision.patch_size);
    case LayerKind::kVisionBlock:
      return VisionShape(vision);
    case LayerKind::kProjector:
      return Join("in ", vision.hidden_size * config.shuffle() * config.shuffle(), ", out ",
                  text.hidden_size, ", rows ", config.tokens_per_tile());
    case LayerKind::kDecoderBlock:
      return DecoderShape(text);
    case LayerKind::kTokenEmbedding:
    case LayerKind::kHead:
      return Join("hidden ", text.hidden_size, ", vocabulary ", text.vocab_size,
                  text.tie_word_embeddings ? ", tied" : "");
  }
  return "";
}

}  // namespace equipoise
