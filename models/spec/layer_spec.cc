#include "models/spec/layer_spec.h"

namespace equipoise {
namespace {

LayerSpec PatchEmbedding(const VisionConfig& vision) {
  const int64_t hidden = vision.hidden_size, patches = vision.patches();
  const int64_t patch = vision.num_channels * vision.patch_size * vision.patch_size;
  LayerSpec spec;
  spec.kind = LayerKind::kPatchEmbedding;
  spec.name = "vision_tower.embeddings";
  spec.parameters = patch * hidden + hidden   // projection
                    + (patches + 1) * hidden  // positions
                    + hidden;                 // class token
  spec.flops_per_tile = 2.0 * static_cast<double>(patches * patch * hidden);
  spec.kept_per_tile = patches * patch;
  spec.output_per_tile = (patches + 1) * hidden;
  return spec;
}

LayerSpec VisionBlock(const VisionConfig& vision, int64_t index) {
  const int64_t hidden = vision.hidden_size, inner = vision.intermediate_size;
  const int64_t rows = vision.patches() + 1;
  const int64_t norm = vision.norm_type == "rms_norm" ? hidden : 2 * hidden;
  const int64_t matrices = 4 * hidden * hidden + 2 * hidden * inner;
  LayerSpec spec;
  spec.kind = LayerKind::kVisionBlock;
  spec.name = "vision_tower.encoder.layer." + std::to_string(index);
  spec.parameters = matrices + hidden + inner + hidden  // biases of output, fc1, fc2
                    + 2 * norm + 2 * hidden             // norms, layer scales
                    + (vision.attention_bias ? 3 * hidden : 0) +
                    (vision.use_qk_norm ? 2 * hidden : 0);
  // Scores and weighted values: two products of rows x rows x hidden.
  spec.flops_per_tile = 2.0 * static_cast<double>(rows) * static_cast<double>(matrices) +
                        4.0 * static_cast<double>(rows * rows) * static_cast<double>(hidden);
  // Input, norm, q k v (once more normalised: q k), attention, output, residual, norm, fc2 (hidden
  // each); fc1, GELU (inner).
  spec.kept_per_tile = rows * ((vision.use_qk_norm ? 12 : 10) * hidden + 2 * inner);
  spec.output_per_tile = rows * hidden;
  return spec;
}

LayerSpec Projector(const ModelConfig& config) {
  const int64_t in = config.vision.hidden_size * config.shuffle() * config.shuffle();
  const int64_t out = config.text.hidden_size, tokens = config.tokens_per_tile();
  LayerSpec spec;
  spec.kind = LayerKind::kProjector;
  spec.name = "multi_modal_projector";
  spec.parameters = 2 * in + in * out + out + out * out + out;
  spec.flops_per_tile =
      2.0 * static_cast<double>(tokens) * static_cast<double>(in * out + out * out);
  // Input (with the class token), merged squares, norm; linear_1, GELU.
  spec.kept_per_tile =
      (config.vision.patches() + 1) * config.vision.hidden_size + tokens * (2 * in + 2 * out);
  spec.output_per_tile = tokens * out;
  return spec;
}

LayerSpec TokenEmbedding(const ModelConfig& config, const std::string& model) {
  const TextConfig& text = config.text;
  LayerSpec spec;
  spec.kind = LayerKind::kTokenEmbedding;
  spec.name = model + "embed_tokens";
  spec.parameters = text.vocab_size * text.hidden_size;
  if (config.has_vision) spec.kept_per_tile = config.tokens_per_tile() * text.hidden_size;
  spec.output_per_token = text.hidden_size;
  return spec;
}

LayerSpec DecoderBlock(const TextConfig& text, const std::string& model, int64_t index) {
  const int64_t hidden = text.hidden_size, inner = text.intermediate_size;
  const int64_t query = text.num_attention_heads * text.head_dim;
  const int64_t key = text.num_key_value_heads * text.head_dim;
  const int64_t matrices = hidden * (query + 2 * key) + query * hidden + 3 * hidden * inner;
  const bool output_bias = text.attention_bias && text.model_type != "qwen2";
  LayerSpec spec;
  spec.kind = LayerKind::kDecoderBlock;
  spec.name = model + "layers." + std::to_string(index);
  spec.parameters = matrices + 2 * hidden + (text.attention_bias ? query + 2 * key : 0) +
                    (output_bias ? hidden : 0) + (text.mlp_bias ? 2 * inner + hidden : 0);
  spec.flops_per_token = 2.0 * static_cast<double>(matrices);
  spec.flops_per_token_pair = 4.0 * static_cast<double>(query);
  // Input, norm, residual, norm; q k v before and q k after rotation, attention; gate, up, product.
  spec.kept_per_token = 4 * hidden + 3 * query + 3 * key + 3 * inner;
  spec.output_per_token = hidden;
  return spec;
}

LayerSpec Head(const TextConfig& text, const std::string& prefix) {
  LayerSpec spec;
  spec.kind = LayerKind::kHead;
  spec.name = prefix + "lm_head";
  spec.parameters =
      text.hidden_size + (text.tie_word_embeddings ? 0 : text.vocab_size * text.hidden_size);
  spec.flops_per_target = 2.0 * static_cast<double>(text.vocab_size * text.hidden_size);
  // Input; its rows with a target, their gradient; logits exist in chunks only.
  spec.kept_per_token = text.hidden_size;
  spec.kept_per_target = 2 * text.hidden_size;
  return spec;
}

}  // namespace

LayerLoad SingleSegment(int64_t tiles, int64_t tokens) {
  return {tiles, tokens, 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1),
          tokens};
}

double LayerSpec::ForwardFlops(const LayerLoad& load) const {
  return flops_per_tile * static_cast<double>(load.tiles) +
         flops_per_token * static_cast<double>(load.tokens) +
         flops_per_token_pair * load.token_pairs +
         flops_per_target * static_cast<double>(load.targets);
}

double LayerSpec::BackwardFlops(const LayerLoad& load) const {
  return 2.0 * ForwardFlops(load) + 0.5 * flops_per_token_pair * load.token_pairs;
}

int64_t LayerSpec::ActivationBytes(const LayerLoad& load, int64_t element_bytes) const {
  return (kept_per_tile * load.tiles + kept_per_token * load.tokens +
          kept_per_target * load.targets) *
         element_bytes;
}

int64_t LayerSpec::BoundaryBytes(const LayerLoad& load, int64_t element_bytes) const {
  return (output_per_tile * load.tiles + output_per_token * load.tokens) * element_bytes;
}

std::vector<LayerSpec> LayerSpecs(const ModelConfig& config) {
  std::vector<LayerSpec> specs;
  if (config.has_vision) {
    specs.push_back(PatchEmbedding(config.vision));
    for (int64_t i = 0; i < config.vision.num_hidden_layers; ++i) {
      specs.push_back(VisionBlock(config.vision, i));
    }
    specs.push_back(Projector(config));
  }
  const std::string prefix = config.has_vision ? "language_model." : "";
  specs.push_back(TokenEmbedding(config, prefix + "model."));
  for (int64_t i = 0; i < config.text.num_hidden_layers; ++i) {
    specs.push_back(DecoderBlock(config.text, prefix + "model.", i));
  }
  specs.push_back(Head(config.text, prefix));
  return specs;
}

}  // namespace equipoise
