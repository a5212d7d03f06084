#include "models/families/llava/llava.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "configs/base/error.h"
#include "models/families/decoder_config.h"
#include "models/families/llava/encoder_specs.h"
#include "models/families/llava/image_settings.h"

namespace equipoise {
namespace {

constexpr char kClip[] = "clip_vision_model", kSiglip[] = "siglip_vision_model";

// Absent keys have the defaults of Transformers' CLIPVisionConfig and SiglipVisionConfig.
VisionConfig ParseVision(const ConfigSection& section) {
  VisionConfig vision;
  vision.model_type = GetString(section.json, "model_type", section.where, kClip);
  if (vision.model_type != kClip && vision.model_type != kSiglip) {
    section.Refuse("model_type", fmt::format("'{}' is not supported; use {} or {}",
                                             vision.model_type, kClip, kSiglip));
  }
  const bool clip = vision.model_type == kClip;
  vision.hidden_size = section.Size("hidden_size", kMaxWidth, 768);
  vision.intermediate_size = section.Size("intermediate_size", kMaxWidth, 3072);
  vision.num_hidden_layers = section.Size("num_hidden_layers", kMaxLayers, 12);
  vision.num_attention_heads = section.Size("num_attention_heads", kMaxWidth, 12);
  vision.image_size = section.Square("image_size", kMaxPixels, 224);
  vision.patch_size = section.Square("patch_size", kMaxPixels, clip ? 32 : 16);
  vision.num_channels = section.Size("num_channels", 1024, 3);
  if (vision.num_channels != 3) section.Refuse("num_channels", "only 3, RGB, is supported");
  vision.class_token = clip;
  vision.attention_bias = true;
  vision.layer_norm_eps = section.Positive("layer_norm_eps", clip ? 1e-5 : 1e-6);
  vision.initializer_range = section.InitialScale("initializer_range", 0.02);
  vision.hidden_act = GetString(section.json, "hidden_act", section.where,
                                clip ? "quick_gelu" : "gelu_pytorch_tanh");
  if (vision.hidden_act != "quick_gelu" && vision.hidden_act != "gelu" &&
      vision.hidden_act != "gelu_pytorch_tanh") {
    section.Refuse("hidden_act", fmt::format("'{}' is not supported; use quick_gelu, gelu or "
                                             "gelu_pytorch_tanh",
                                             vision.hidden_act));
  }
  vision.pooling_head = !clip && section.Flag("vision_use_head", true);
  section.RequireNoDropout("attention_dropout");
  return vision;
}

// The number of the encoder's blocks whose output the projector gets. The key is an index of the
// states before the first block and after each, from the end where it is negative.
int64_t FeatureLayers(const ConfigSection& top, int64_t layers) {
  if (top.Has("vision_feature_layer") && top.json["vision_feature_layer"].is_array()) {
    top.Refuse("vision_feature_layer", "only one layer is supported, not a list");
  }
  const int64_t index = GetInt(top.json, "vision_feature_layer", top.where, -2);
  const int64_t used = index < 0 ? layers + 1 + index : index;
  if (used < 1 || used > layers) {
    top.Refuse("vision_feature_layer",
               fmt::format("{} is none of the encoder's {} layers", index, layers));
  }
  return used;
}

void Parse(const ConfigSection& top, ModelConfig* config) {
  config->has_vision = true;
  config->vision = ParseVision(Subsection(top, "vision_config"));
  config->text = ParseNestedDecoder(Subsection(top, "text_config"), "llama");
  // As in Transformers, either key ties the head.
  config->text.tie_word_embeddings |= top.Flag("tie_word_embeddings", false);
  config->downsample_ratio = 1;
  const char* key = top.Has("image_token_index") ? "image_token_index" : "image_token_id";
  config->image_token_id = GetInt(top.json, key, top.where, 32000);
  config->vision.feature_layers = FeatureLayers(top, config->vision.num_hidden_layers);
  config->projector_bias = top.Flag("multimodal_projector_bias", true);
  top.RequireText("projector_hidden_act", "gelu");
  // `default` drops the first row, which is CLIP's class token; SigLIP has none.
  top.RequireText("vision_feature_select_strategy",
                  config->vision.class_token ? "default" : "full");
  if (!config->vision.class_token && !top.Has("vision_feature_select_strategy")) {
    top.Refuse("vision_feature_select_strategy",
               "missing; an encoder without a class token needs "
               "'full'");
  }
}

void Validate(const ModelConfig& config, const std::string& where) {
  ValidateDecoder(config.text, where + ": text_config");
  const VisionConfig& vision = config.vision;
  const auto refuse = [&](const std::string& what) { throw DataError(where + ": " + what); };
  if (vision.hidden_size % vision.num_attention_heads != 0) {
    refuse(fmt::format("vision_config: hidden_size: {} is no multiple of {} heads",
                       vision.hidden_size, vision.num_attention_heads));
  }
  if (vision.image_size < vision.patch_size) {
    refuse(fmt::format("vision_config: image_size: {} is below patch_size = {}", vision.image_size,
                       vision.patch_size));
  }
  if (config.image_token_id < 0 || config.image_token_id >= config.text.vocab_size) {
    refuse(fmt::format("image_token_index: {} is outside the vocabulary of {}",
                       config.image_token_id, config.text.vocab_size));
  }
}

void Write(const ModelConfig& config, Json* json) {
  const VisionConfig& vision = config.vision;
  (*json)["architectures"] = {"LlavaForConditionalGeneration"};
  json->erase("image_token_id");
  json->update({{"image_token_index", config.image_token_id},
                {"image_seq_length", config.tokens_per_tile()},
                {"multimodal_projector_bias", config.projector_bias},
                {"projector_hidden_act", "gelu"},
                {"vision_feature_layer", vision.feature_layers - vision.num_hidden_layers - 1},
                {"vision_feature_select_strategy", vision.class_token ? "default" : "full"},
                {"tie_word_embeddings", config.text.tie_word_embeddings}});
  WriteDecoder(config.text, &(*json)["text_config"]);
  Json& section = (*json)["vision_config"];
  section.update({{"model_type", vision.model_type},
                  {"hidden_size", vision.hidden_size},
                  {"intermediate_size", vision.intermediate_size},
                  {"num_hidden_layers", vision.num_hidden_layers},
                  {"num_attention_heads", vision.num_attention_heads},
                  {"num_channels", vision.num_channels},
                  {"image_size", vision.image_size},
                  {"patch_size", vision.patch_size},
                  {"layer_norm_eps", vision.layer_norm_eps},
                  {"initializer_range", vision.initializer_range},
                  {"hidden_act", vision.hidden_act}});
  if (!vision.class_token) section["vision_use_head"] = vision.pooling_head;
}

constexpr std::array<const char*, 5> kEncoderParts = {"embeddings", "pre_layrnorm", "encoder",
                                                      "post_layernorm", "head"};

// Transformers 4 puts one more module around the encoder. Published folders have its name, and
// every version reads them: the first name of each part, in which it is exported. Transformers 5
// writes models that it has not read from such a folder without it, and these version 4 would read
// as folders without an encoder.
std::vector<Renaming> Renamings(const ModelConfig& /*config*/) {
  std::vector<Renaming> renamings;
  for (const std::string part : kEncoderParts) {
    for (const char* theirs : {"vision_tower.vision_model.", "model.vision_tower.vision_model."}) {
      renamings.push_back({"vision_tower." + part, theirs + part, {}});
    }
  }
  return renamings;
}

std::vector<Renaming> RenamingsNext(const ModelConfig& config) {
  std::vector<Renaming> renamings = Renamings(config);
  renamings.push_back({kImageNewline, kImageNewline, {}});
  renamings.push_back({kImageNewline, std::string("model.") + kImageNewline, {}});
  return renamings;
}

// Modules of Transformers 5, whatever the folder's names.
std::vector<Renaming> InMemory(const ModelConfig& /*config*/) {
  std::vector<Renaming> renamings = {{"language_model.lm_head", "lm_head", {}},
                                     {"language_model.model", "model.language_model", {}}};
  for (const char* module : {"vision_tower", "multi_modal_projector", kImageNewline}) {
    renamings.push_back({module, std::string("model.") + module, {}});
  }
  return renamings;
}

int64_t FindImageToken(const std::string& /*folder*/) { return -1; }

// Heights and widths in pixels.
std::vector<std::array<int64_t, 2>> ParsePinpoints(const ConfigSection& top) {
  constexpr char kKey[] = "image_grid_pinpoints";
  if (!top.Has(kKey)) return {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  const Json& list = top.json[kKey];
  std::vector<std::array<int64_t, 2>> pinpoints;
  if (!list.is_array() || list.empty()) top.Refuse(kKey, "not a list of heights and widths");
  for (const Json& one : list) {
    const bool fits = one.is_array() && one.size() == 2 && one[0].is_number_integer() &&
                      one[1].is_number_integer() && one[0] > 0 && one[1] > 0 &&
                      one[0] <= kMaxPixels && one[1] <= kMaxPixels;
    if (!fits) top.Refuse(kKey, one.dump() + " is not a height and a width in pixels");
    pinpoints.push_back({one[0].get<int64_t>(), one[1].get<int64_t>()});
  }
  return pinpoints;
}

void ParseNext(const ConfigSection& top, ModelConfig* config) {
  Parse(top, config);
  config->image_grid_pinpoints = ParsePinpoints(top);
}

void ValidateNext(const ModelConfig& config, const std::string& where) {
  Validate(config, where);
  const int64_t side = config.vision.image_size;
  for (const auto& [height, width] : config.image_grid_pinpoints) {
    if (height % side == 0 && width % side == 0) continue;
    throw DataError(
        fmt::format("{}: image_grid_pinpoints: {} x {} pixels are not whole tiles of {}; use "
                    "multiples of vision_config.image_size",
                    where, height, width, side));
  }
}

void WriteNext(const ModelConfig& config, Json* json) {
  // A default that nothing reads.
  const Json length = json->value("image_seq_length", Json(576));
  Write(config, json);
  (*json)["architectures"] = {"LlavaNextForConditionalGeneration"};
  (*json)["image_seq_length"] = length;
  (*json)["image_grid_pinpoints"] = config.image_grid_pinpoints;
}

// The resolutions of LLaVA-OneVision that a config.json need not list: all of up to six tiles of
// 384 pixels on a side.
Json OnevisionPinpoints() {
  constexpr int64_t kSide = 384, kMost = 6;
  Json pinpoints = Json::array();
  for (int64_t rows = 1; rows <= kMost; ++rows) {
    for (int64_t columns = 1; columns <= kMost; ++columns) {
      pinpoints.push_back({rows * kSide, columns * kSide});
    }
  }
  return pinpoints;
}

// N of anyres_max_N.
int64_t ParseMaxTiles(const ConfigSection& top) {
  constexpr char kKey[] = "vision_aspect_ratio";
  constexpr std::string_view kBegin = "anyres_max_";
  constexpr int64_t kMostTiles = 1 << 20;
  const std::string text = GetString(top.json, kKey, top.where, "anyres_max_9");
  int64_t tiles = 0;
  const char* end = text.data() + text.size();
  const char* number = text.starts_with(kBegin) ? text.data() + kBegin.size() : end;
  const auto read = std::from_chars(number, end, tiles);
  if (read.ec != std::errc() || read.ptr != end || tiles < 1 || tiles > kMostTiles) {
    top.Refuse(kKey, fmt::format("'{}' is not supported; use anyres_max_9, or another number of "
                                 "tiles from 1 to {}",
                                 text, kMostTiles));
  }
  return tiles;
}

// The section of an encoder or a language model, of that type where it does not tell.
void SetType(Json* json, const char* section, const char* type) {
  if (json->contains(section) && (*json)[section].is_object()) {
    if (!(*json)[section].contains("model_type")) (*json)[section]["model_type"] = type;
  }
}

// Absent keys have the defaults of Transformers' LlavaOnevisionConfig.
void ParseOnevision(const ConfigSection& top, ModelConfig* config) {
  Json json = top.json;
  SetType(&json, "vision_config", kSiglip);
  SetType(&json, "text_config", "qwen2");
  Json defaults = {{"vision_feature_layer", -1}, {"vision_feature_select_strategy", "full"}};
  if (!top.Has("image_token_id")) defaults["image_token_index"] = 151646;
  defaults["image_grid_pinpoints"] = OnevisionPinpoints();
  for (const auto& [key, value] : defaults.items()) {
    if (!top.Has(key.c_str())) json[key] = value;
  }
  ParseNext({json, top.where}, config);
  if (config->vision.class_token) {
    top.Refuse("vision_config", fmt::format("model_type: '{}' is not supported here, only {} is",
                                            config->vision.model_type, kSiglip));
  }
  config->anyres_max_tiles = ParseMaxTiles(top);
  const char* key = top.Has("video_token_index") ? "video_token_index" : "video_token_id";
  config->video_token_id = GetInt(top.json, key, top.where, 151647);
}

void WriteOnevision(const ModelConfig& config, Json* json) {
  Write(config, json);
  for (const char* key : {"image_seq_length", "video_token_id"}) json->erase(key);
  json->update({{"architectures", {"LlavaOnevisionForConditionalGeneration"}},
                {"image_grid_pinpoints", config.image_grid_pinpoints},
                {"video_token_index", config.video_token_id},
                {"vision_aspect_ratio", fmt::format("anyres_max_{}", config.anyres_max_tiles)}});
}

// The conversation that the model's authors trained with.
FolderSettings Settings(const ModelConfig& config, const std::string& /*folder*/) {
  FolderSettings settings;
  if (config.text.model_type == "llama") settings.default_template = "vicuna_v1";
  if (config.text.model_type == "qwen2") settings.default_template = "qwen2-vl";
  return settings;
}

FolderSettings SettingsNext(const ModelConfig& config, const std::string& folder) {
  FolderSettings settings = Settings(config, folder);
  if (config.text.model_type == "mistral") settings.default_template = "llava-mistral";
  return settings;
}

}  // namespace

const EncoderFamily& Llava() {
  static const EncoderFamily kFamily = {
      {"llava"},   Parse,          Validate, Write,   Renamings, LlavaEncoderSpecs,
      LlavaImages, FindImageToken, Settings, nullptr, InMemory};
  return kFamily;
}

const EncoderFamily& LlavaNext() {
  static const EncoderFamily kFamily = {
      {"llava_next"},  ParseNext,      ValidateNext, WriteNext, RenamingsNext, LlavaEncoderSpecs,
      LlavaNextImages, FindImageToken, SettingsNext, nullptr,   InMemory};
  return kFamily;
}

const EncoderFamily& LlavaOnevision() {
  static const EncoderFamily kFamily = {{"llava_onevision"},
                                        ParseOnevision,
                                        ValidateNext,
                                        WriteOnevision,
                                        RenamingsNext,
                                        LlavaEncoderSpecs,
                                        LlavaOnevisionImages,
                                        FindImageToken,
                                        SettingsNext,
                                        nullptr,
                                        InMemory};
  return kFamily;
}

}  // namespace equipoise
