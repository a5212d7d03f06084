#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/spec/lora.h"

namespace equipoise {

// The naming of the weights and of the keys of config.json in a model's folder.
enum class WeightNaming {
  kTransformers,
  kOriginal,  // that of the code which the model was published with
  kModules,   // of weights: Transformers' modules in memory, where its files have other names
};

// Field names are those of the Hugging Face configuration where it has one. LibTorch-free.

struct VisionConfig {
  std::string model_type = "internvl_vision";
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t image_size = 448;  // pixels, square tiles
  int64_t patch_size = 14;
  int64_t num_channels = 3;
  std::string norm_type = "layer_norm";  // layer_norm | rms_norm
  bool attention_bias = false;           // of q, k, v
  bool use_qk_norm = false;              // RMSNorm of q and k over all heads
  double layer_norm_eps = 1e-6;
  // Epsilon of the norms of q and k, where it is not layer_norm_eps.
  double qk_norm_eps = 1e-6;
  double layer_scale_init_value = 0.1;
  double initializer_range = 0.02;
  double drop_path_rate = 0;  // of the last block, as timm's DropPath; blocks before it have less
  std::string hidden_act = "gelu";
  bool class_token = true;
  bool pooling_head = false;   // weights that nothing here computes with
  int64_t feature_layers = 0;  // blocks whose output the connector gets; 0: all
  // Of encoders that take pictures at their own size. A patch comes temporal_patch_size times.
  // Attention stays within windows of window_size pixels, except in full_attention blocks.
  int64_t temporal_patch_size = 1, window_size = 0;
  int64_t tokens_per_second = 0;  // ImageSpec::Videos::positions_per_second
  std::vector<int64_t> full_attention;
  double rope_theta = 10000.0;
  // Learned positions of a square of patches, from which those of a picture's grid are
  // interpolated; 0: none.
  int64_t num_position_embeddings = 0;
  // Blocks whose output is a feature of its own, ascending (TextConfig::deepstack_layers).
  std::vector<int64_t> deepstack_visual_indexes;

  int64_t patches() const { return (image_size / patch_size) * (image_size / patch_size); }
  // Rows of a tile in the encoder.
  int64_t rows() const { return patches() + (class_token ? 1 : 0); }
};

struct TextConfig {
  std::string model_type;  // of its family: models/families
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
  // Scaling of rotary positions: "default", "linear" and "dynamic" with rope_factor, "llama3" with
  // its four numbers, "yarn" and "longrope" with those below (models/layers/rotary_table.h).
  std::string rope_type = "default";
  double rope_factor = 1, rope_low_freq_factor = 1, rope_high_freq_factor = 4;
  int64_t rope_original_max_position_embeddings = 0;
  // Of "yarn": pairs that turn more often than the first within the original positions keep their
  // frequency, those that turn less often than the second have it divided by rope_factor.
  double rope_beta_fast = 32, rope_beta_slow = 1;
  bool rope_truncate = true;  // these two bounds fall on whole pairs
  // Of "longrope": what each pair's frequency is divided by, in sequences within the original
  // positions and in longer ones.
  std::vector<double> rope_short_factor, rope_long_factor;
  // Of "yarn" and "longrope": what cosines and sines are multiplied by.
  double rope_attention_factor = 1;
  double partial_rotary_factor = 1;  // share of a head's elements that turn, its first ones
  // Tokens that attention looks back on, the token itself included; 0: all. Attention within a
  // window is not computed: longer sequences are refused (models/spec/sliding_window.h).
  int64_t sliding_window = 0;
  // Multimodal positions (M-RoPE): pairs of a head's elements that turn by the time, the row and
  // the column of a token. Empty: all turn by one position.
  std::vector<int64_t> mrope_section;
  // Whether pairs of the three take turns, those of rows and columns as long as their sections
  // last; else the sections lie one after the other.
  bool mrope_interleaved = false;
  // The first blocks, each of which is followed by the addition of a feature of the encoder to the
  // rows of image tokens (DeepStack, arXiv 2406.04334).
  int64_t deepstack_layers = 0;
  bool attention_bias = false;         // of q, k, v
  bool attention_output_bias = false;  // of o
  bool use_qk_norm = false;            // RMSNorm of q and k within each head
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  int64_t bos_token_id = -1, eos_token_id = -1, pad_token_id = -1;

  // Elements of a head that turn.
  int64_t rotary_dim() const {
    return static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
};

struct ModelConfig {
  std::string model_type;  // of its family: models/families
  WeightNaming naming = WeightNaming::kTransformers;
  bool has_vision = false;
  VisionConfig vision;
  TextConfig text;
  double downsample_ratio = 0.5;
  bool projector_bias = true;
  // LLaVA-NeXT's resolutions, heights and widths in pixels. Empty: a picture has one tile.
  std::vector<std::array<int64_t, 2>> image_grid_pinpoints;
  // LLaVA-OneVision's: ImageSpec::max_tiles. 0: another family.
  int64_t anyres_max_tiles = 0;
  // Placeholder token of pictures. -1: unknown, since config.json does not name it and the folder
  // has no tokenizer.
  int64_t image_token_id = -1;
  int64_t video_token_id = -1;  // of models that also take videos; -1: another family
  Json source;                  // the config.json that this was read from, for export
  // The settings of the folder's image processor (preprocessor_config.json); null: it has none.
  Json preprocessor;
  // Those of its video processor: of video_preprocessor_config.json, else the same; null: neither.
  Json video_preprocessor;
  LoraConfig lora;          // adapters over the frozen model
  QuantizeConfig quantize;  // of what is frozen under them
  // Modules (our names) that are trained although their components are frozen.
  std::set<std::string> unfreeze;
  // Pixels of a picture at its own size, and of a video, in place of those settings; 0: as they
  // are.
  int64_t min_pixels = 0, max_pixels = 0, min_video_pixels = 0, max_video_pixels = 0;

  // Neighbouring patches, in each direction, that become one LLM token.
  int64_t shuffle() const { return std::llround(1.0 / downsample_ratio); }
  // LLM tokens that one tile becomes.
  int64_t tokens_per_tile() const {
    const int64_t side = vision.image_size / vision.patch_size / shuffle();
    return side * side;
  }
};

}  // namespace equipoise
