#include "models/spec/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Far above every published model, and small enough that no product of two overflows int64_t.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxVocabulary = int64_t{1} << 26;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kMaxPixels = int64_t{1} << 14;
// Of frequencies, factors and epsilons; the largest theta published is 1e9.
constexpr double kMaxFactor = 1e15;

// One object of the file. `where` begins every message: the source, and the section if it is not
// the top level.
struct Section {
  const Json& json;
  std::string where;

  [[noreturn]] void Refuse(const std::string& key, const std::string& what) const {
    throw DataError(where + ": " + key + ": " + what);
  }
  bool Has(const char* key) const { return json.contains(key) && !json[key].is_null(); }

  int64_t Size(const char* key, int64_t max) const {
    return Checked(key, GetInt(json, key, where), max);
  }
  int64_t Size(const char* key, int64_t max, int64_t fallback) const {
    return Checked(key, GetInt(json, key, where, fallback), max);
  }
  double Share(const char* key) const {
    const double value = GetNumber(json, key, where, 0.0);
    if (!(value >= 0 && value < 1)) Refuse(key, "must be at least 0 and below 1");
    return value;
  }
  double Positive(const char* key, double fallback) const {
    const double value = GetNumber(json, key, where, fallback);
    if (!(value > 0) || value > kMaxFactor) {
      Refuse(key, fmt::format("must be above 0 and at most {}", kMaxFactor));
    }
    return value;
  }
  // The scale of initial weights: beyond 1 no network of many layers starts to learn.
  double InitialScale(const char* key, double fallback) const {
    const double value = GetNumber(json, key, where, fallback);
    if (!(value >= 0 && value <= 100)) Refuse(key, "must be between 0 and 100");
    return value;
  }
  bool Flag(const char* key, bool fallback) const { return GetBool(json, key, where, fallback); }

  // A feature of the format that this program computes in one way only.
  void RequireText(const char* key, const std::string& only) const {
    const std::string value = GetString(json, key, where, only);
    if (value != only) Refuse(key, "'" + value + "' is not supported, only '" + only + "' is");
  }
  void RequireFlag(const char* key, bool only) const {
    if (Flag(key, only) != only) {
      Refuse(key, std::string(only ? "false" : "true") + " is not supported");
    }
  }
  void RequireNoDropout(const char* key) const {
    if (GetNumber(json, key, where, 0.0) != 0.0) {
      Refuse(key, "dropout is not supported; set it to 0 to go on without");
    }
  }
  // A number, or a list of two equal ones.
  int64_t Square(const char* key, int64_t max, int64_t fallback) const {
    if (!Has(key) || !json[key].is_array()) return Size(key, max, fallback);
    const Json& list = json[key];
    if (list.size() != 2 || list[0] != list[1]) Refuse(key, "must be one size or two equal ones");
    return Checked(key, GetInt(Json{{key, list[0]}}, key, where), max);
  }
  // A token id, or the first of a list; -1 when absent.
  int64_t TokenId(const char* key) const {
    if (!Has(key)) return -1;
    if (!json[key].is_array()) return GetInt(json, key, where);
    if (json[key].empty()) return -1;
    return GetInt(Json{{key, json[key][0]}}, key, where);
  }

 private:
  int64_t Checked(const char* key, int64_t value, int64_t max) const {
    if (value < 1 || value > max) {
      Refuse(key, std::to_string(value) + " is not between 1 and " + std::to_string(max));
    }
    return value;
  }
};

Section Subsection(const Section& parent, const char* key) {
  if (!parent.Has(key)) parent.Refuse(key, "missing");
  if (!parent.json[key].is_object()) parent.Refuse(key, "not an object");
  return {parent.json[key], parent.where + ": " + key};
}

// Transformers 5 writes one `rope_parameters`; 4 writes `rope_theta` and `rope_scaling`.
void ParseRope(const Section& section, TextConfig* text) {
  const char* key = section.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json none = Json::object();
  const Section rope =
      section.Has(key) ? Subsection(section, key) : Section{none, section.where + ": " + key};
  const double theta = section.Positive("rope_theta", 10000.0);
  text->rope_theta = rope.Positive("rope_theta", theta);
  const std::string older = GetString(rope.json, "type", rope.where, "default");
  text->rope_type = GetString(rope.json, "rope_type", rope.where, older);
  if (text->rope_type == "default") return;
  if (text->rope_type != "llama3") {
    rope.Refuse("rope_type",
                "'" + text->rope_type + "' is not supported, only 'default' and 'llama3' are");
  }
  for (const char* needed : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!rope.Has(needed)) rope.Refuse(needed, "missing");
  }
  text->rope_factor = rope.Positive("factor", 1);
  text->rope_low_freq_factor = rope.Positive("low_freq_factor", 1);
  text->rope_high_freq_factor = rope.Positive("high_freq_factor", 1);
  text->rope_original_max_position_embeddings =
      rope.Size("original_max_position_embeddings", kMaxPositions);
  if (text->rope_low_freq_factor >= text->rope_high_freq_factor) {
    rope.Refuse("low_freq_factor", "must be below high_freq_factor");
  }
}

void RequireFullAttention(const Section& section) {
  if (!section.Has("layer_types")) return;
  for (const Json& type : section.json["layer_types"]) {
    if (type != Json("full_attention")) {
      section.Refuse("layer_types", "only 'full_attention' is supported");
    }
  }
}

TextConfig ParseText(const Section& section) {
  TextConfig text;
  text.model_type = GetString(section.json, "model_type", section.where);
  const bool qwen2 = text.model_type == "qwen2";
  if (!qwen2 && text.model_type != "llama") {
    section.Refuse("model_type", "'" + text.model_type + "' is not supported; use qwen2 or llama");
  }
  text.hidden_size = section.Size("hidden_size", kMaxWidth);
  text.intermediate_size = section.Size("intermediate_size", kMaxWidth);
  text.num_hidden_layers = section.Size("num_hidden_layers", kMaxLayers);
  text.num_attention_heads = section.Size("num_attention_heads", kMaxWidth);
  text.num_key_value_heads =
      section.Size("num_key_value_heads", kMaxWidth, text.num_attention_heads);
  text.vocab_size = section.Size("vocab_size", kMaxVocabulary);
  text.max_position_embeddings =
      section.Size("max_position_embeddings", kMaxPositions, qwen2 ? 32768 : 2048);
  if (!section.Has("head_dim") && text.hidden_size % text.num_attention_heads != 0) {
    section.Refuse("hidden_size", std::to_string(text.hidden_size) + " is no multiple of " +
                                      std::to_string(text.num_attention_heads) + " heads");
  }
  text.head_dim = section.Size("head_dim", kMaxWidth,
                               std::max<int64_t>(1, text.hidden_size / text.num_attention_heads));
  text.rms_norm_eps = section.Positive("rms_norm_eps", 1e-6);
  ParseRope(section, &text);
  text.attention_bias = qwen2 || section.Flag("attention_bias", false);
  text.mlp_bias = !qwen2 && section.Flag("mlp_bias", false);
  text.tie_word_embeddings = section.Flag("tie_word_embeddings", false);
  text.initializer_range = section.InitialScale("initializer_range", 0.02);
  text.bos_token_id = section.TokenId("bos_token_id");
  text.eos_token_id = section.TokenId("eos_token_id");
  text.pad_token_id = section.TokenId("pad_token_id");
  section.RequireText("hidden_act", "silu");
  section.RequireNoDropout("attention_dropout");
  section.RequireFlag("use_sliding_window", false);
  RequireFullAttention(section);
  return text;
}

VisionConfig ParseVision(const Section& section) {
  VisionConfig vision;
  section.RequireText("model_type", "internvl_vision");
  vision.hidden_size = section.Size("hidden_size", kMaxWidth, 1024);
  vision.intermediate_size = section.Size("intermediate_size", kMaxWidth, 4096);
  vision.num_hidden_layers = section.Size("num_hidden_layers", kMaxLayers, 24);
  vision.num_attention_heads = section.Size("num_attention_heads", kMaxWidth, 16);
  vision.image_size = section.Square("image_size", kMaxPixels, 448);
  vision.patch_size = section.Square("patch_size", kMaxPixels, 14);
  vision.num_channels = section.Size("num_channels", 1024, 3);
  if (vision.num_channels != 3) section.Refuse("num_channels", "only 3, RGB, is supported");
  vision.norm_type = GetString(section.json, "norm_type", section.where, "layer_norm");
  vision.attention_bias = section.Flag("attention_bias", false);
  vision.use_qk_norm = section.Flag("use_qk_norm", false);
  vision.layer_norm_eps = section.Positive("layer_norm_eps", 1e-6);
  vision.layer_scale_init_value = section.InitialScale("layer_scale_init_value", 0.1);
  vision.initializer_range = section.InitialScale("initializer_range", 0.02);
  vision.drop_path_rate = section.Share("drop_path_rate");
  section.RequireText("hidden_act", "gelu");
  section.RequireNoDropout("attention_dropout");
  section.RequireNoDropout("hidden_dropout_prob");
  section.RequireNoDropout("projection_dropout");
  section.RequireFlag("use_absolute_position_embeddings", true);
  section.RequireFlag("use_mask_token", false);
  section.RequireFlag("use_mean_pooling", true);
  return vision;
}

// InternVL's head is tied by the top-level key, which Transformers 5 leaves out when it is true;
// Transformers 4 goes by the key in text_config.
bool TiedHead(const Section& top, const TextConfig& text) {
  if (top.Has("tie_word_embeddings")) return top.Flag("tie_word_embeddings", false);
  const std::string version = GetString(top.json, "transformers_version", top.where, "4");
  return version.substr(0, 2) == "5." || text.tie_word_embeddings;
}

void ParseInternVl(const Section& top, ModelConfig* config) {
  config->has_vision = true;
  config->vision = ParseVision(Subsection(top, "vision_config"));
  config->text = ParseText(Subsection(top, "text_config"));
  config->text.tie_word_embeddings = TiedHead(top, config->text);
  config->downsample_ratio = top.Positive("downsample_ratio", 0.5);
  config->image_token_id = GetInt(top.json, "image_token_id", top.where, 151667);
  top.RequireText("projector_hidden_act", "gelu");
  top.RequireText("vision_feature_select_strategy", "default");
  if (top.Has("vision_feature_layer") && top.json["vision_feature_layer"] != Json(-1)) {
    top.Refuse("vision_feature_layer", "only -1, the last layer, is supported");
  }
}

// Defaults are those of OpenGVLab's code: the 6B form.
VisionConfig ParseOpenGvLabVision(const Section& section) {
  VisionConfig vision;
  section.RequireText("model_type", "intern_vit_6b");
  vision.hidden_size = section.Size("hidden_size", kMaxWidth, 3200);
  vision.intermediate_size = section.Size("intermediate_size", kMaxWidth, 12800);
  vision.num_hidden_layers = section.Size("num_hidden_layers", kMaxLayers, 48);
  vision.num_attention_heads = section.Size("num_attention_heads", kMaxWidth, 25);
  vision.image_size = section.Square("image_size", kMaxPixels, 224);
  vision.patch_size = section.Square("patch_size", kMaxPixels, 14);
  vision.num_channels = section.Size("num_channels", 1024, 3);
  if (vision.num_channels != 3) section.Refuse("num_channels", "only 3, RGB, is supported");
  vision.norm_type = GetString(section.json, "norm_type", section.where, "rms_norm");
  vision.attention_bias = section.Flag("qkv_bias", false);
  vision.use_qk_norm = section.Flag("qk_normalization", true);
  vision.layer_norm_eps = vision.qk_norm_eps = section.Positive("layer_norm_eps", 1e-6);
  vision.layer_scale_init_value = section.InitialScale("initializer_factor", 0.1);
  vision.initializer_range = section.InitialScale("initializer_range", 0.02);
  vision.drop_path_rate = section.Share("drop_path_rate");
  section.RequireText("hidden_act", "gelu");
  section.RequireNoDropout("attention_dropout");
  section.RequireNoDropout("dropout");
  return vision;
}

void ParseOpenGvLab(const Section& top, ModelConfig* config) {
  config->model_type = "internvl";
  config->naming = WeightNaming::kOpenGvLab;
  config->has_vision = true;
  config->vision = ParseOpenGvLabVision(Subsection(top, "vision_config"));
  config->text = ParseText(Subsection(top, "llm_config"));
  config->downsample_ratio = top.Positive("downsample_ratio", 0.5);
  config->image_token_id = GetInt(top.json, "image_token_id", top.where, -1);
  if (top.Size("force_image_size", kMaxPixels, config->vision.image_size) !=
      config->vision.image_size) {
    top.Refuse("force_image_size",
               "differs from image_size of vision_config; positions of "
               "another size are not supported");
  }
  top.RequireText("ps_version", "v2");
  if (top.Has("select_layer") && top.json["select_layer"] != Json(-1)) {
    top.Refuse("select_layer", "only -1, the last layer, is supported");
  }
}

// The id of <IMG_CONTEXT> in a tokenizer's files, each of which may be absent; -1 when none has it.
int64_t FindImageToken(const std::string& folder) {
  const std::string token = "<IMG_CONTEXT>";
  const auto read = [&](const char* name) {
    const std::string path = folder + "/" + name;
    return std::filesystem::exists(path) ? ReadJsonFile(path) : Json();
  };
  const Json added = read("added_tokens.json");  // {"<IMG_CONTEXT>": 151667}
  if (added.is_object() && added.contains(token)) return GetInt(added, token.c_str(), folder);
  const Json whole = read("tokenizer.json");  // added_tokens: [{"id": 151667, "content": ...}]
  if (!whole.is_object() || !whole.contains("added_tokens")) return -1;
  for (const Json& entry : whole["added_tokens"]) {
    if (!entry.is_object() || !entry.contains("content")) continue;
    if (entry["content"] == Json(token)) return GetInt(entry, "id", folder + "/tokenizer.json");
  }
  return -1;
}

Json RopeParameters(const TextConfig& text) {
  Json rope = {{"rope_type", text.rope_type}, {"rope_theta", text.rope_theta}};
  if (text.rope_type == "llama3") {
    rope["factor"] = text.rope_factor;
    rope["low_freq_factor"] = text.rope_low_freq_factor;
    rope["high_freq_factor"] = text.rope_high_freq_factor;
    rope["original_max_position_embeddings"] = text.rope_original_max_position_embeddings;
  }
  return rope;
}

void SetTokenId(Json* json, const char* key, int64_t id) {
  // A list in the source (several end tokens) says more than its first element does.
  const bool same = json->contains(key) && (*json)[key].is_array() && !(*json)[key].empty() &&
                    (*json)[key][0] == Json(id);
  if (!same) (*json)[key] = id < 0 ? Json(nullptr) : Json(id);
}

void WriteText(const TextConfig& text, Json* json) {
  json->update({{"model_type", text.model_type},
                {"hidden_size", text.hidden_size},
                {"intermediate_size", text.intermediate_size},
                {"num_hidden_layers", text.num_hidden_layers},
                {"num_attention_heads", text.num_attention_heads},
                {"num_key_value_heads", text.num_key_value_heads},
                {"vocab_size", text.vocab_size},
                {"max_position_embeddings", text.max_position_embeddings},
                {"rms_norm_eps", text.rms_norm_eps},
                {"tie_word_embeddings", text.tie_word_embeddings},
                {"initializer_range", text.initializer_range},
                {"hidden_act", "silu"},
                {"rope_theta", text.rope_theta},
                {"rope_parameters", RopeParameters(text)}});
  // Transformers 4 reads these; 5 prefers rope_scaling where both are there, so they must agree.
  (*json)["rope_scaling"] = text.rope_type == "default" ? Json(nullptr) : RopeParameters(text);
  if (text.model_type == "llama") {
    (*json)["head_dim"] = text.head_dim;
    (*json)["attention_bias"] = text.attention_bias;
    (*json)["mlp_bias"] = text.mlp_bias;
  } else if (text.head_dim * text.num_attention_heads != text.hidden_size) {
    (*json)["head_dim"] = text.head_dim;
  }
  SetTokenId(json, "bos_token_id", text.bos_token_id);
  SetTokenId(json, "eos_token_id", text.eos_token_id);
  SetTokenId(json, "pad_token_id", text.pad_token_id);
}

void WriteVision(const VisionConfig& vision, Json* json) {
  json->update({{"model_type", "internvl_vision"},
                {"hidden_size", vision.hidden_size},
                {"intermediate_size", vision.intermediate_size},
                {"num_hidden_layers", vision.num_hidden_layers},
                {"num_attention_heads", vision.num_attention_heads},
                {"num_channels", vision.num_channels},
                {"norm_type", vision.norm_type},
                {"attention_bias", vision.attention_bias},
                {"use_qk_norm", vision.use_qk_norm},
                {"layer_norm_eps", vision.layer_norm_eps},
                {"layer_scale_init_value", vision.layer_scale_init_value},
                {"initializer_range", vision.initializer_range},
                {"hidden_act", vision.hidden_act},
                {"use_mean_pooling", true},
                {"use_mask_token", false},
                {"use_absolute_position_embeddings", true}});
  (*json)["image_size"] = std::vector<int64_t>{vision.image_size, vision.image_size};
  (*json)["patch_size"] = std::vector<int64_t>{vision.patch_size, vision.patch_size};
}

void ValidateText(const TextConfig& text, const std::string& where) {
  const auto refuse = [&](const std::string& what) { throw DataError(where + ": " + what); };
  if (text.num_attention_heads % text.num_key_value_heads != 0) {
    refuse("num_key_value_heads: " + std::to_string(text.num_key_value_heads) +
           " do not divide num_attention_heads = " + std::to_string(text.num_attention_heads));
  }
  if (text.head_dim % 2 != 0) refuse("head_dim: must be even, for rotary positions");
  // As Transformers: a row of the embedding is set to zero by it.
  if (text.pad_token_id < -1 || text.pad_token_id >= text.vocab_size) {
    refuse(fmt::format("pad_token_id: {} is outside the vocabulary of {}", text.pad_token_id,
                       text.vocab_size));
  }
  const int64_t width = text.head_dim * text.num_attention_heads;
  if (width > kMaxWidth) refuse("head_dim: times num_attention_heads is too large");
}

void ValidateVision(const ModelConfig& config, const std::string& where) {
  const VisionConfig& vision = config.vision;
  const auto refuse = [&](const std::string& what) { throw DataError(where + ": " + what); };
  if (vision.norm_type != "layer_norm" && vision.norm_type != "rms_norm") {
    refuse("vision_config: norm_type: '" + vision.norm_type +
           "' is neither layer_norm nor rms_norm");
  }
  if (vision.hidden_size % vision.num_attention_heads != 0) {
    refuse("vision_config: hidden_size: " + std::to_string(vision.hidden_size) +
           " is no multiple of " + std::to_string(vision.num_attention_heads) + " heads");
  }
  if (vision.image_size % vision.patch_size != 0) {
    refuse("vision_config: image_size: " + std::to_string(vision.image_size) +
           " is no multiple of patch_size = " + std::to_string(vision.patch_size));
  }
  const int64_t side = vision.image_size / vision.patch_size;
  if (config.downsample_ratio > 1 || config.downsample_ratio * static_cast<double>(side) < 1 ||
      std::abs(1.0 / config.downsample_ratio - static_cast<double>(config.shuffle())) > 1e-9 ||
      side % config.shuffle() != 0) {
    refuse("downsample_ratio: must be 1/n with an n that divides the " + std::to_string(side) +
           " patches of a tile's side");
  }
  const bool unknown = config.naming == WeightNaming::kOpenGvLab && config.image_token_id == -1;
  if (!unknown && (config.image_token_id < 0 || config.image_token_id >= config.text.vocab_size)) {
    refuse("image_token_id: " + std::to_string(config.image_token_id) +
           " is outside the vocabulary of " + std::to_string(config.text.vocab_size));
  }
}

}  // namespace

void ValidateModelConfig(const ModelConfig& config, const std::string& source) {
  const char* text = config.naming == WeightNaming::kOpenGvLab ? ": llm_config" : ": text_config";
  ValidateText(config.text, config.has_vision ? source + text : source);
  if (config.has_vision) ValidateVision(config, source);
}

ModelConfig ParseModelConfig(const Json& json, const std::string& source) {
  if (!json.is_object()) throw DataError(source + ": not a JSON object");
  const Section top{json, source};
  ModelConfig config;
  config.model_type = GetString(json, "model_type", source);
  if (top.Has("quantization_config")) {
    top.Refuse("quantization_config", "quantised weights are not supported; use the original ones");
  }
  if (config.model_type == "internvl") {
    ParseInternVl(top, &config);
  } else if (config.model_type == "internvl_chat") {
    ParseOpenGvLab(top, &config);
  } else if (config.model_type == "qwen2" || config.model_type == "llama") {
    config.text = ParseText(top);
  } else {
    top.Refuse("model_type", "'" + config.model_type +
                                 "' is not supported; use internvl, internvl_chat, qwen2 or llama");
  }
  config.source = json;
  ValidateModelConfig(config, source);
  return config;
}

ModelConfig ReadModelConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  ModelConfig config = ParseModelConfig(ReadJsonFile(path), path);
  if (config.has_vision && config.image_token_id < 0) {
    config.image_token_id = FindImageToken(folder);
    ValidateModelConfig(config, path);
  }
  return config;
}

std::vector<std::string> IgnoredSettings(const ModelConfig& config) {
  std::vector<std::string> lines;
  if (config.has_vision && config.vision.drop_path_rate != 0) {
    lines.push_back(
        fmt::format("vision_config.drop_path_rate: {} is not applied, every sample goes through "
                    "every layer; set it to 0 to silence this",
                    Json(config.vision.drop_path_rate).dump()));
  }
  const TextConfig& text = config.text;
  for (const auto& [key, id] : {std::pair<const char*, int64_t>{"bos_token_id", text.bos_token_id},
                                {"eos_token_id", text.eos_token_id}}) {
    if (id >= -1 && id < text.vocab_size) continue;
    lines.push_back(fmt::format("{}: {} is outside the vocabulary of {} and stands for no token",
                                key, id, text.vocab_size));
  }
  return lines;
}

Json ToHuggingFace(const ModelConfig& config) {
  if (config.naming == WeightNaming::kOpenGvLab) {
    Json json = config.source;  // training changes none of it
    json["torch_dtype"] = "float32";
    return json;
  }
  Json json = config.source.is_object() ? config.source : Json::object();
  // The version that wrote the source decides nothing here: every key it would default is written.
  json.erase("transformers_version");
  json["model_type"] = config.model_type;
  json["dtype"] = json["torch_dtype"] = "float32";
  if (!config.has_vision) {
    json["architectures"] = {config.model_type == "qwen2" ? "Qwen2ForCausalLM"
                                                          : "LlamaForCausalLM"};
    WriteText(config.text, &json);
    return json;
  }
  json["architectures"] = {"InternVLForConditionalGeneration"};
  json["downsample_ratio"] = config.downsample_ratio;
  json["image_seq_length"] = config.tokens_per_tile();
  json["image_token_id"] = config.image_token_id;
  json["projector_hidden_act"] = "gelu";
  json["vision_feature_layer"] = -1;
  json["vision_feature_select_strategy"] = "default";
  json["tie_word_embeddings"] = config.text.tie_word_embeddings;
  WriteText(config.text, &json["text_config"]);
  WriteVision(config.vision, &json["vision_config"]);
  return json;
}

}  // namespace equipoise
