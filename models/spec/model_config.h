#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/json.h"

namespace equipoise {

// How a folder names its weights, and the keys of its config.json.
enum class WeightNaming {
  kTransformers,
  kOpenGvLab,  // published InternVL folders: model_type internvl_chat, fused qkv, mlp1.*
};

// Field names are those of the Hugging Face configuration where it has one. LibTorch-free.

struct VisionConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t image_size = 448;  // pixels, square tiles
  int64_t patch_size = 14;
  int64_t num_channels = 3;
  std::string norm_type = "layer_norm";  // layer_norm (InternViT-300M) | rms_norm (InternViT-6B)
  bool attention_bias = false;           // of q, k, v
  bool use_qk_norm = false;              // RMSNorm of q and k over all heads
  double layer_norm_eps = 1e-6;
  // Of the norms of q and k: Transformers' class keeps 1e-6 whatever layer_norm_eps says,
  // OpenGVLab's takes layer_norm_eps.
  double qk_norm_eps = 1e-6;
  double layer_scale_init_value = 0.1;
  double initializer_range = 0.02;
  double drop_path_rate = 0;  // not applied, see IgnoredSettings
  std::string hidden_act = "gelu";

  int64_t patches() const { return (image_size / patch_size) * (image_size / patch_size); }
};

struct TextConfig {
  std::string model_type;  // qwen2 | llama
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  // rope_type "default" or "llama3" with its four numbers.
  std::string rope_type = "default";
  double rope_factor = 1, rope_low_freq_factor = 1, rope_high_freq_factor = 4;
  int64_t rope_original_max_position_embeddings = 0;
  bool attention_bias = false;  // of q, k, v (Qwen2: true); LLaMA's flag covers o as well
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  int64_t bos_token_id = -1, eos_token_id = -1, pad_token_id = -1;
};

struct ModelConfig {
  std::string model_type;  // internvl | qwen2 | llama
  WeightNaming naming = WeightNaming::kTransformers;
  bool has_vision = false;
  VisionConfig vision;
  TextConfig text;
  double downsample_ratio = 0.5;
  // The <IMG_CONTEXT> token. -1 = not known, in a folder of OpenGVLab's without a tokenizer.
  int64_t image_token_id = -1;
  Json source;  // the config.json it was read from, for export

  // Neighbouring patches, in each direction, that become one LLM token.
  int64_t shuffle() const { return std::llround(1.0 / downsample_ratio); }
  // LLM tokens that one tile becomes.
  int64_t tokens_per_tile() const {
    const int64_t side = vision.image_size / vision.patch_size / shuffle();
    return side * side;
  }
};

// Reads a Hugging Face config.json, as Transformers 4 and 5 write it (rope_theta or
// rope_parameters, torch_dtype or dtype, image_size as a number or a list), or as OpenGVLab does.
// Throws DataError that begins with `source:` and names the key for what is missing, impossible or
// not supported.
ModelConfig ParseModelConfig(const Json& json, const std::string& source);
// Reads FOLDER/config.json. OpenGVLab's does not name the picture token; its id then comes from the
// tokenizer's files beside it.
ModelConfig ReadModelConfig(const std::string& folder);

// Refuses sizes that do not go together, as ParseModelConfig does; for configurations made by hand.
void ValidateModelConfig(const ModelConfig& config, const std::string& source);

// One line for each setting of the configuration that training does not apply, though a user may
// expect it to, or that stands for nothing.
std::vector<std::string> IgnoredSettings(const ModelConfig& config);

// A config.json that Transformers (4 and 5) reads back as the same model; of OpenGVLab's naming,
// the one that OpenGVLab's code reads back. Keys of `config.source` that we do not know are kept.
Json ToHuggingFace(const ModelConfig& config);

}  // namespace equipoise
