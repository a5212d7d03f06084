#include "models/families/presets.h"

#include "configs/base/error.h"

namespace equipoise {
namespace {

struct TextShape {
  const char* model_type;
  int64_t hidden, intermediate, layers, heads, kv_heads, vocabulary;
  double rope_theta;
  int64_t image_token_id;
  bool tied = false;
  int64_t head_dim = 0;  // 0: hidden / heads
};

enum class Encoder {
  kSmall,
  k300M,
  k6B,
  kClipL,
  kClipLNext,
  kSiglipOnevision,
  kQwen2Vl,
  kQwen25Vl,
  kQwen25VlLarge,
  kQwen3Vl,
  kQwen3VlLarge,
};

struct Preset {
  const char* name;
  Encoder encoder;
  TextShape text;
};

// A language model of InternVL3.5: 8 key/value heads of 128, heads not tied.
TextShape Qwen3(int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads) {
  return {"qwen3", hidden, intermediate, layers, heads, 8, 151936, 1e6, 151671, false, 128};
}

// A language model of Qwen2-VL and Qwen2.5-VL: heads of 128, rotary positions of three kinds.
TextShape QwenVl(int64_t hidden, int64_t intermediate, int64_t layers, int64_t kv_heads,
                 bool tied = false) {
  return {"qwen2", hidden, intermediate, layers, hidden / 128, kv_heads, tied ? 151936 : 152064,
          1e6,     151655, tied};
}

// A language model of Qwen3-VL.
TextShape Qwen3Vl(int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads,
                  bool tied = false) {
  return {"qwen3", hidden, intermediate, layers, heads, 8, 151936, 5e6, 151655, tied, 128};
}

// A language model of LLaVA-OneVision: Qwen2's, its vocabulary with three more tokens rounded up to
// a multiple of 64.
TextShape Qwen2Onevision(int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads,
                         int64_t kv_heads) {
  const bool tied = hidden == 896;
  return {"qwen2", hidden, intermediate, layers, heads, kv_heads, tied ? 152000 : 152128,
          1e6,     151646, tied};
}

// InternLM2 and Phi-3 have the layers of LLaMA (with query, key and value stored as one tensor),
// Qwen2.5 those of Qwen2. Vocabularies are those of the published InternVL checkpoints, except for
// internvl2-40b: Yi-34B's 64,000 plus the nine tokens that the others add as well.
const std::vector<Preset>& Presets() {
  static const std::vector<Preset> kPresets = {
      {"quickstart", Encoder::kSmall, {"qwen2", 256, 768, 6, 4, 2, 2048, 1e4, 2047, true}},
      {"llava_onevision-0.5b", Encoder::kSiglipOnevision, Qwen2Onevision(896, 4864, 24, 14, 2)},
      {"internvl2-1b", Encoder::k300M, {"qwen2", 896, 4864, 24, 14, 2, 151655, 1e6, 151648}},
      {"internvl3-1b", Encoder::k300M, {"qwen2", 896, 4864, 24, 14, 2, 151674, 1e6, 151667}},
      {"internvl3_5-1b", Encoder::k300M, Qwen3(1024, 3072, 28, 16)},
      {"internvl3-2b", Encoder::k300M, {"qwen2", 1536, 8960, 28, 12, 2, 151674, 1e6, 151667}},
      {"qwen2_vl-2b", Encoder::kQwen2Vl, QwenVl(1536, 8960, 28, 2, true)},
      {"qwen3_vl-2b", Encoder::kQwen3Vl, Qwen3Vl(2048, 6144, 28, 16, true)},
      {"internvl2-2b", Encoder::k300M, {"llama", 2048, 8192, 24, 16, 8, 92553, 1e6, 92546}},
      {"internvl3_5-2b", Encoder::k300M, Qwen3(2048, 6144, 28, 16)},
      {"internvl2_5-4b", Encoder::k300M, {"qwen2", 2048, 11008, 36, 16, 2, 151674, 1e6, 151667}},
      {"internvl2-4b", Encoder::k300M, {"llama", 3072, 8192, 32, 32, 32, 32020, 1e4, 32013}},
      {"qwen2_5_vl-3b", Encoder::kQwen25Vl, QwenVl(2048, 11008, 36, 2, true)},
      {"qwen3_vl-4b", Encoder::kQwen3Vl, Qwen3Vl(2560, 9728, 36, 32, true)},
      {"internvl3_5-4b", Encoder::k300M, Qwen3(2560, 9728, 36, 32)},
      {"llava1_5-7b", Encoder::kClipL, {"llama", 4096, 11008, 32, 32, 32, 32064, 1e4, 32000}},
      {"llava1_6-7b", Encoder::kClipLNext, {"llama", 4096, 11008, 32, 32, 32, 32064, 1e4, 32000}},
      {"llava1_6-mistral-7b",
       Encoder::kClipLNext,
       {"mistral", 4096, 14336, 32, 32, 8, 32064, 1e6, 32000}},
      {"internvl3-8b", Encoder::k300M, {"qwen2", 3584, 18944, 28, 28, 4, 151674, 1e6, 151667}},
      {"llava_onevision-7b", Encoder::kSiglipOnevision, Qwen2Onevision(3584, 18944, 28, 28, 4)},
      {"internvl2-8b", Encoder::k300M, {"llama", 4096, 14336, 32, 32, 8, 92553, 1e6, 92546}},
      {"qwen2_vl-7b", Encoder::kQwen2Vl, QwenVl(3584, 18944, 28, 4)},
      {"qwen2_5_vl-7b", Encoder::kQwen25Vl, QwenVl(3584, 18944, 28, 4)},
      {"qwen3_vl-8b", Encoder::kQwen3VlLarge, Qwen3Vl(4096, 12288, 36, 32)},
      {"internvl3_5-8b", Encoder::k300M, Qwen3(4096, 12288, 36, 32)},
      {"llava1_5-13b", Encoder::kClipL, {"llama", 5120, 13824, 40, 40, 40, 32064, 1e4, 32000}},
      {"internvl3-14b", Encoder::k300M, {"qwen2", 5120, 13824, 48, 40, 8, 151674, 1e6, 151667}},
      {"internvl3_5-14b", Encoder::k300M, Qwen3(5120, 17408, 40, 40)},
      {"internvl2-26b", Encoder::k6B, {"llama", 6144, 16384, 48, 48, 8, 92553, 1e6, 92546}},
      {"qwen2_5_vl-32b", Encoder::kQwen25VlLarge, QwenVl(5120, 27648, 64, 8)},
      {"qwen3_vl-32b", Encoder::kQwen3VlLarge, Qwen3Vl(5120, 25600, 64, 64)},
      {"internvl3-38b", Encoder::k6B, {"qwen2", 5120, 27648, 64, 40, 8, 151674, 1e6, 151667}},
      {"internvl3_5-38b", Encoder::k6B, Qwen3(5120, 25600, 64, 64)},
      {"internvl2-40b", Encoder::k6B, {"llama", 7168, 20480, 60, 56, 8, 64009, 5e6, 64002}},
      {"llava_onevision-72b", Encoder::kSiglipOnevision, Qwen2Onevision(8192, 29568, 80, 64, 8)},
      {"qwen2_vl-72b", Encoder::kQwen2Vl, QwenVl(8192, 29568, 80, 8)},
      {"qwen2_5_vl-72b", Encoder::kQwen25VlLarge, QwenVl(8192, 29568, 80, 8)},
      {"internvl3-78b", Encoder::k6B, {"qwen2", 8192, 29568, 80, 64, 8, 151674, 1e6, 151667}},
  };
  return kPresets;
}

bool IsQwenVl(Encoder encoder) { return encoder >= Encoder::kQwen2Vl; }
bool IsQwen3Vl(Encoder encoder) { return encoder >= Encoder::kQwen3Vl; }

// An encoder of Qwen3-VL.
VisionConfig Qwen3VlEncoder(Encoder encoder) {
  const bool large = encoder == Encoder::kQwen3VlLarge;
  VisionConfig vision;
  vision.model_type = "qwen3_vl_vision";
  vision.hidden_size = large ? 1152 : 1024;
  vision.intermediate_size = large ? 4304 : 4096;
  vision.num_hidden_layers = large ? 27 : 24;
  vision.num_attention_heads = 16;
  vision.patch_size = 16;
  vision.class_token = false;
  vision.attention_bias = true;
  vision.hidden_act = "gelu_pytorch_tanh";
  vision.temporal_patch_size = 2;
  vision.num_position_embeddings = 2304;
  vision.deepstack_visual_indexes =
      large ? std::vector<int64_t>{8, 16, 24} : std::vector<int64_t>{5, 11, 17};
  return vision;
}

// An encoder of Qwen2-VL, or of Qwen2.5-VL with windows.
VisionConfig QwenVlEncoder(Encoder encoder) {
  if (IsQwen3Vl(encoder)) return Qwen3VlEncoder(encoder);
  VisionConfig vision;
  vision.model_type = "qwen2_vl_vision";
  vision.hidden_size = 1280;
  vision.intermediate_size = 5120;
  vision.num_hidden_layers = 32;
  vision.num_attention_heads = 16;
  vision.class_token = false;
  vision.attention_bias = true;
  vision.hidden_act = "quick_gelu";
  vision.temporal_patch_size = 2;
  if (encoder == Encoder::kQwen2Vl) return vision;
  vision.model_type = "qwen2_5_vl_vision";
  vision.intermediate_size = encoder == Encoder::kQwen25Vl ? 3420 : 3456;
  vision.norm_type = "rms_norm";
  vision.hidden_act = "silu";
  vision.window_size = 112;
  vision.tokens_per_second = 2;
  vision.full_attention = {7, 15, 23, 31};
  return vision;
}

VisionConfig EncoderConfig(Encoder encoder) {
  if (IsQwenVl(encoder)) return QwenVlEncoder(encoder);
  VisionConfig vision;
  switch (encoder) {
    case Encoder::kSmall:
      vision.hidden_size = 256;
      vision.intermediate_size = 1024;
      vision.num_hidden_layers = 6;
      vision.num_attention_heads = 4;
      vision.image_size = 112;
      vision.attention_bias = true;
      break;
    case Encoder::k300M:
      vision.hidden_size = 1024;
      vision.intermediate_size = 4096;
      vision.num_hidden_layers = 24;
      vision.num_attention_heads = 16;
      vision.attention_bias = true;
      break;
    case Encoder::k6B:
      vision.hidden_size = 3200;
      vision.intermediate_size = 12800;
      vision.num_hidden_layers = 45;
      vision.num_attention_heads = 25;
      vision.norm_type = "rms_norm";
      vision.use_qk_norm = true;
      break;
    case Encoder::kClipL:
    case Encoder::kClipLNext:  // CLIP ViT-L/14 for 336 pixels; the last of its layers is not used
      vision.model_type = "clip_vision_model";
      vision.hidden_size = 1024;
      vision.intermediate_size = 4096;
      vision.num_hidden_layers = 24;
      vision.num_attention_heads = 16;
      vision.image_size = 336;
      vision.attention_bias = true;
      vision.layer_norm_eps = 1e-5;
      vision.hidden_act = "quick_gelu";
      vision.feature_layers = 23;
      break;
    case Encoder::kSiglipOnevision:  // SigLIP so400m for 384 pixels, without its last layer
      vision.model_type = "siglip_vision_model";
      vision.hidden_size = 1152;
      vision.intermediate_size = 4304;
      vision.num_hidden_layers = 26;
      vision.num_attention_heads = 16;
      vision.image_size = 384;
      vision.attention_bias = true;
      vision.hidden_act = "gelu_pytorch_tanh";
      vision.class_token = false;
      vision.feature_layers = 26;
      break;
    default:
      break;
  }
  return vision;
}

TextConfig LanguageModelConfig(const TextShape& shape) {
  TextConfig text;
  text.model_type = shape.model_type;
  text.hidden_size = shape.hidden;
  text.intermediate_size = shape.intermediate;
  text.num_hidden_layers = shape.layers;
  text.num_attention_heads = shape.heads;
  text.num_key_value_heads = shape.kv_heads;
  text.head_dim = shape.head_dim > 0 ? shape.head_dim : shape.hidden / shape.heads;
  text.vocab_size = shape.vocabulary;
  const std::string type = shape.model_type;
  text.max_position_embeddings = type == "qwen3" ? 40960 : 32768;
  text.rms_norm_eps = type == "llama" || type == "mistral" ? 1e-5 : 1e-6;
  text.rope_theta = shape.rope_theta;
  text.attention_bias = type == "qwen2";
  text.use_qk_norm = type == "qwen3";
  text.tie_word_embeddings = shape.tied;
  return text;
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.emplace_back(preset.name);
  return names;
}

namespace {

// What LLaVA-OneVision has beside its encoder and its language model.
void MakeOnevision(ModelConfig* config) {
  config->model_type = "llava_onevision";
  config->downsample_ratio = 1;
  config->anyres_max_tiles = 9;
  config->video_token_id = config->image_token_id + 1;
  for (int64_t rows = 1; rows <= 6; ++rows) {
    for (int64_t columns = 1; columns <= 6; ++columns) {
      config->image_grid_pinpoints.push_back({rows * 384, columns * 384});
    }
  }
}

// What models of Qwen have beside their encoder and their language model.
void MakeQwenVl(Encoder encoder, ModelConfig* config) {
  config->model_type = encoder == Encoder::kQwen2Vl ? "qwen2_vl" : "qwen2_5_vl";
  config->naming = WeightNaming::kOriginal;
  config->video_token_id = config->image_token_id + 1;
  config->text.mrope_section = {16, 24, 24};
  if (encoder != Encoder::kQwen2Vl) config->text.max_position_embeddings = 128000;
  if (!IsQwen3Vl(encoder)) return;
  config->model_type = "qwen3_vl";
  config->naming = WeightNaming::kModules;
  config->text.mrope_section = {24, 20, 20};
  config->text.mrope_interleaved = true;
  config->text.deepstack_layers = std::ssize(config->vision.deepstack_visual_indexes);
  config->text.max_position_embeddings = 262144;
}

}  // namespace

ModelConfig PresetConfig(const std::string& name) {
  std::string known;
  for (const Preset& preset : Presets()) {
    if (name == preset.name) {
      ModelConfig config;
      config.model_type = "internvl";
      config.has_vision = true;
      config.vision = EncoderConfig(preset.encoder);
      config.text = LanguageModelConfig(preset.text);
      config.image_token_id = preset.text.image_token_id;
      if (preset.encoder == Encoder::kClipL || preset.encoder == Encoder::kClipLNext) {
        config.model_type = "llava";
        config.downsample_ratio = 1;
        if (config.text.model_type == "llama") config.text.max_position_embeddings = 4096;
      }
      if (preset.encoder == Encoder::kClipLNext) {
        config.model_type = "llava_next";
        config.image_grid_pinpoints = {
            {336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
      }
      if (preset.encoder == Encoder::kSiglipOnevision) MakeOnevision(&config);
      if (IsQwenVl(preset.encoder)) MakeQwenVl(preset.encoder, &config);
      return config;
    }
    known += known.empty() ? preset.name : std::string(", ") + preset.name;
  }
  throw ConfigError("model.preset: no preset '" + name + "'; use one of " + known);
}

}  // namespace equipoise
