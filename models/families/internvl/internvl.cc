#include "models/families/internvl/internvl.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "models/families/decoder_config.h"
#include "models/families/internvl/encoder_specs.h"
#include "models/families/processor_steps.h"

namespace equipoise {
namespace {

// Reads the keys that both namings share; `defaults` has the values of those that are absent.
VisionConfig ParseVision(const ConfigSection& section, const VisionConfig& defaults) {
  VisionConfig vision = defaults;
  vision.hidden_size = section.Size("hidden_size", kMaxWidth, defaults.hidden_size);
  vision.intermediate_size =
      section.Size("intermediate_size", kMaxWidth, defaults.intermediate_size);
  vision.num_hidden_layers =
      section.Size("num_hidden_layers", kMaxLayers, defaults.num_hidden_layers);
  vision.num_attention_heads =
      section.Size("num_attention_heads", kMaxWidth, defaults.num_attention_heads);
  vision.image_size = section.Square("image_size", kMaxPixels, defaults.image_size);
  vision.patch_size = section.Square("patch_size", kMaxPixels, defaults.patch_size);
  vision.num_channels = section.Size("num_channels", 1024, 3);
  if (vision.num_channels != 3) section.Refuse("num_channels", "only 3, RGB, is supported");
  vision.norm_type = GetString(section.json, "norm_type", section.where, defaults.norm_type);
  vision.layer_norm_eps = section.Positive("layer_norm_eps", 1e-6);
  vision.initializer_range = section.InitialScale("initializer_range", 0.02);
  vision.drop_path_rate = section.Share("drop_path_rate");
  section.RequireText("hidden_act", "gelu");
  section.RequireNoDropout("attention_dropout");
  return vision;
}

// Absent keys have the defaults of Transformers: the 300M form.
VisionConfig ParseTransformersVision(const ConfigSection& section) {
  section.RequireText("model_type", "internvl_vision");
  VisionConfig defaults;
  defaults.hidden_size = 1024;
  defaults.intermediate_size = 4096;
  defaults.num_hidden_layers = 24;
  defaults.num_attention_heads = 16;
  VisionConfig vision = ParseVision(section, defaults);
  vision.attention_bias = section.Flag("attention_bias", false);
  vision.use_qk_norm = section.Flag("use_qk_norm", false);
  vision.layer_scale_init_value = section.InitialScale("layer_scale_init_value", 0.1);
  section.RequireNoDropout("hidden_dropout_prob");
  section.RequireNoDropout("projection_dropout");
  section.RequireFlag("use_absolute_position_embeddings", true);
  section.RequireFlag("use_mask_token", false);
  section.RequireFlag("use_mean_pooling", true);
  return vision;
}

// Whether the head is tied. The top-level key decides, which Transformers 5 omits when it is true;
// Transformers 4 uses the key in text_config.
bool TiedHead(const ConfigSection& top, const TextConfig& text) {
  if (top.Has("tie_word_embeddings")) return top.Flag("tie_word_embeddings", false);
  const std::string version = GetString(top.json, "transformers_version", top.where, "4");
  return version.starts_with("5.") || text.tie_word_embeddings;
}

void ParseInternVl(const ConfigSection& top, ModelConfig* config) {
  config->has_vision = true;
  config->vision = ParseTransformersVision(Subsection(top, "vision_config"));
  config->text = ParseDecoder(Subsection(top, "text_config"));
  config->text.tie_word_embeddings = TiedHead(top, config->text);
  config->downsample_ratio = top.Positive("downsample_ratio", 0.5);
  config->image_token_id = GetInt(top.json, "image_token_id", top.where, 151667);
  top.RequireText("projector_hidden_act", "gelu");
  top.RequireText("vision_feature_select_strategy", "default");
  if (top.Has("vision_feature_layer") && top.json["vision_feature_layer"] != Json(-1)) {
    top.Refuse("vision_feature_layer", "only -1, the last layer, is supported");
  }
}

// Absent keys have the defaults of OpenGVLab's code: the 6B form.
VisionConfig ParseOpenGvLabVision(const ConfigSection& section) {
  section.RequireText("model_type", "intern_vit_6b");
  VisionConfig defaults;
  defaults.hidden_size = 3200;
  defaults.intermediate_size = 12800;
  defaults.num_hidden_layers = 48;
  defaults.num_attention_heads = 25;
  defaults.image_size = 224;
  defaults.norm_type = "rms_norm";
  VisionConfig vision = ParseVision(section, defaults);
  vision.attention_bias = section.Flag("qkv_bias", false);
  vision.use_qk_norm = section.Flag("qk_normalization", true);
  vision.qk_norm_eps = vision.layer_norm_eps;
  vision.layer_scale_init_value = section.InitialScale("initializer_factor", 0.1);
  section.RequireNoDropout("dropout");
  return vision;
}

void ParseOpenGvLab(const ConfigSection& top, ModelConfig* config) {
  config->model_type = "internvl";
  config->naming = WeightNaming::kOriginal;
  config->has_vision = true;
  config->vision = ParseOpenGvLabVision(Subsection(top, "vision_config"));
  config->text = ParseDecoder(Subsection(top, "llm_config"));
  config->downsample_ratio = top.Positive("downsample_ratio", 0.5);
  config->image_token_id = GetInt(top.json, "image_token_id", top.where, -1);
  if (top.Size("force_image_size", kMaxPixels, config->vision.image_size) !=
      config->vision.image_size) {
    top.Refuse("force_image_size",
               "differs from image_size of vision_config; positions of "
               "another size are not supported");
  }
  if (GetString(top.json, "ps_version", top.where, "v1") != "v2") {
    top.Refuse("ps_version", "only 'v2' is supported; where it is missing, it is v1");
  }
  if (top.Has("select_layer") && top.json["select_layer"] != Json(-1)) {
    top.Refuse("select_layer", "only -1, the last layer, is supported");
  }
}

void Parse(const ConfigSection& top, ModelConfig* config) {
  if (GetString(top.json, "model_type", top.where) == "internvl_chat") {
    ParseOpenGvLab(top, config);
  } else {
    ParseInternVl(top, config);
  }
}

// Tiles of one size, each with a class token, normalized as for ImageNet unless the folder's image
// processor says otherwise.
ImageSpec Images(const ModelConfig& config) {
  ImageSpec images;
  images.kind = ImageSpec::Kind::kTiles;
  images.tile_size = config.vision.image_size;
  images.rows_per_tile = config.vision.patches() + 1;
  images.tokens_per_tile = config.tokens_per_tile();
  images.mean = {0.485F, 0.456F, 0.406F};
  images.deviation = {0.229F, 0.224F, 0.225F};
  images.grounding = ImageSpec::Grounding::kInternVl;
  // OpenGVLab's code reads no image processor.
  if (config.naming != WeightNaming::kTransformers || !config.preprocessor.is_object())
    return images;
  constexpr char kFile[] = "image processor";
  RequireKnownSteps(config.preprocessor, kFile);
  RequireSide(config.preprocessor, "size", images.tile_size, kFile);
  ReadNormalization(config.preprocessor, kFile, &images);
  return images;
}

// The id of <IMG_CONTEXT> in a tokenizer's files.
int64_t FindImageToken(const std::string& folder) {
  const std::string token = "<IMG_CONTEXT>";
  const auto read = [&](const char* name) {
    const std::string path = folder + "/" + name;
    return std::filesystem::exists(path) ? ReadJsonFile(path) : Json();
  };
  const Json whole = read("tokenizer.json");  // added_tokens: [{"id": 151667, "content": ...}]
  if (whole.is_object() && whole.contains("added_tokens")) {
    for (const Json& entry : whole["added_tokens"]) {
      if (!entry.is_object() || !entry.contains("content")) continue;
      if (entry["content"] == Json(token)) return GetInt(entry, "id", folder + "/tokenizer.json");
    }
  }
  const Json settings = read("tokenizer_config.json");  // {"151667": {"content": ...}}
  if (settings.is_object() && settings.contains("added_tokens_decoder")) {
    for (const auto& [id, entry] : settings["added_tokens_decoder"].items()) {
      if (!entry.is_object() || !entry.contains("content")) continue;
      if (entry["content"] != Json(token)) continue;
      if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos) {
        throw DataError(fmt::format("{}/tokenizer_config.json: added_tokens_decoder: '{}' is no id",
                                    folder, id));
      }
      return std::stoll(id);
    }
  }
  const Json added = read("added_tokens.json");  // {"<IMG_CONTEXT>": 151667}
  if (added.is_object() && added.contains(token)) return GetInt(added, token.c_str(), folder);
  return -1;
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

void Write(const ModelConfig& config, Json* json) {
  if (config.naming == WeightNaming::kOriginal) {  // training changes no other key
    (*json)["torch_dtype"] = "float32";
    // With a rank here OpenGVLab's code wraps the layers and looks for adapters that there are not:
    // what was read, and is written, is merged.
    for (const char* key : {"use_llm_lora", "use_backbone_lora"}) {
      if (json->contains(key)) (*json)[key] = 0;
    }
    return;
  }
  (*json)["architectures"] = {"InternVLForConditionalGeneration"};
  (*json)["downsample_ratio"] = config.downsample_ratio;
  (*json)["image_seq_length"] = config.tokens_per_tile();
  (*json)["image_token_id"] = config.image_token_id;
  (*json)["projector_hidden_act"] = "gelu";
  (*json)["vision_feature_layer"] = -1;
  (*json)["vision_feature_select_strategy"] = "default";
  (*json)["tie_word_embeddings"] = config.text.tie_word_embeddings;
  WriteDecoder(config.text, &(*json)["text_config"]);
  WriteVision(config.vision, &(*json)["vision_config"]);
}

void Validate(const ModelConfig& config, const std::string& where) {
  const bool original = config.naming == WeightNaming::kOriginal;
  ValidateDecoder(config.text, where + (original ? ": llm_config" : ": text_config"));
  const VisionConfig& vision = config.vision;
  const auto refuse = [&](const std::string& what) { throw DataError(where + ": " + what); };
  if (vision.norm_type != "layer_norm" && vision.norm_type != "rms_norm") {
    refuse(fmt::format("vision_config: norm_type: '{}' is neither layer_norm nor rms_norm",
                       vision.norm_type));
  }
  if (vision.hidden_size % vision.num_attention_heads != 0) {
    refuse(fmt::format("vision_config: hidden_size: {} is no multiple of {} heads",
                       vision.hidden_size, vision.num_attention_heads));
  }
  if (vision.image_size % vision.patch_size != 0) {
    refuse(fmt::format("vision_config: image_size: {} is no multiple of patch_size = {}",
                       vision.image_size, vision.patch_size));
  }
  const int64_t side = vision.image_size / vision.patch_size;
  if (config.downsample_ratio > 1 || config.downsample_ratio * static_cast<double>(side) < 1 ||
      std::abs(1.0 / config.downsample_ratio - static_cast<double>(config.shuffle())) > 1e-9 ||
      side % config.shuffle() != 0) {
    refuse(fmt::format(
        "downsample_ratio: must be 1/n with an n that divides the {} patches of a tile's side",
        side));
  }
  const bool unknown = original && config.image_token_id == -1;
  if (!unknown && (config.image_token_id < 0 || config.image_token_id >= config.text.vocab_size)) {
    refuse(fmt::format("image_token_id: {} is outside the vocabulary of {}", config.image_token_id,
                       config.text.vocab_size));
  }
}

// OpenGVLab's code fuses q, k and v: three equal parts.
std::vector<Renaming> Renamings(const ModelConfig& /*config*/) {
  const std::string ours = "vision_tower.embeddings.", theirs = "vision_model.embeddings.";
  const std::string layer = "vision_tower.encoder.layer.#.";
  const std::string their_layer = "vision_model.encoder.layers.#.";
  return {
      {ours + "cls_token", theirs + "class_embedding", {}},
      {ours + "patch_embeddings.projection", theirs + "patch_embedding", {}},
      {ours + "position_embeddings", theirs + "position_embedding", {}},
      {"multi_modal_projector.layer_norm", "mlp1.0", {}},
      {"multi_modal_projector.linear_1", "mlp1.1", {}},
      {"multi_modal_projector.linear_2", "mlp1.3", {}},
      {layer + "attention.q_proj", their_layer + "attn.qkv", {0, 1, 3, 1}},
      {layer + "attention.k_proj", their_layer + "attn.qkv", {1, 1, 3, 1}},
      {layer + "attention.v_proj", their_layer + "attn.qkv", {2, 1, 3, 1}},
      {layer + "attention.q_norm", their_layer + "attn.q_norm", {}},
      {layer + "attention.k_norm", their_layer + "attn.k_norm", {}},
      {layer + "attention.projection_layer", their_layer + "attn.proj", {}},
      {layer + "layernorm_before", their_layer + "norm1", {}},
      {layer + "layernorm_after", their_layer + "norm2", {}},
      {layer + "lambda_1", their_layer + "ls1", {}},
      {layer + "lambda_2", their_layer + "ls2", {}},
      {layer + "mlp", their_layer + "mlp", {}},
  };
}

constexpr int64_t kMaxTiles = 64;  // as data.tiles.max

// A number of tiles; no value where the key is absent or null.
std::optional<int64_t> Tiles(const Json& json, const char* key, const std::string& where) {
  if (!json.contains(key) || json[key].is_null()) return std::nullopt;
  const int64_t tiles = GetInt(json, key, where);
  if (tiles >= 1 && tiles <= kMaxTiles) return tiles;
  throw DataError(fmt::format("{}: {}: {} is not between 1 and {}", where, key, tiles, kMaxTiles));
}

// Settings of Transformers' image processor, in the file of version 4 or of version 5; where both
// are there, version 5 reads its own. The processor cuts pictures into tiles whatever
// `crop_to_patches` says there.
FolderSettings ProcessorSettings(const std::string& folder) {
  FolderSettings settings;
  settings.max_tiles = 12;
  settings.thumbnail = true;
  const std::string own = folder + "/preprocessor_config.json";
  const std::string whole = folder + "/processor_config.json";
  for (const std::string& path : {whole, own}) {
    if (!std::filesystem::exists(path)) continue;
    Json json = ReadJsonFile(path);
    if (json.is_object() && json.contains("image_processor")) {
      const Json inner = json["image_processor"];
      json = inner;
    } else if (path == whole && std::filesystem::exists(own)) {
      continue;
    }
    if (!json.is_object()) throw DataError(path + ": not an object");
    settings.min_tiles = Tiles(json, "min_patches", path);
    if (const auto most = Tiles(json, "max_patches", path)) settings.max_tiles = most;
    break;
  }
  return settings;
}

// Settings of a folder; in OpenGVLab's naming, config.json has those of tiles and of the template.
FolderSettings Settings(const ModelConfig& config, const std::string& folder) {
  if (config.naming == WeightNaming::kTransformers) return ProcessorSettings(folder);
  const std::string path = folder + "/config.json";
  const Json& json = config.source;
  FolderSettings settings;
  settings.min_tiles = Tiles(json, "min_dynamic_patch", path);
  settings.max_tiles = Tiles(json, "max_dynamic_patch", path);
  if (!GetBool(json, "dynamic_image_size", path, false)) {
    settings.min_tiles = settings.max_tiles = 1;
  }
  settings.thumbnail = GetBool(json, "use_thumbnail", path, false);
  const std::string name = GetString(json, "template", path, "");
  if (!name.empty()) settings.chat_template = name;
  const std::string system = GetString(json, "system_message", path, "");
  if (!system.empty()) settings.system = system;
  return settings;
}

}  // namespace

const EncoderFamily& InternVl() {
  static const EncoderFamily kFamily = {
      {"internvl", "internvl_chat"}, Parse,  Validate,       Write,   Renamings,
      InternVlEncoderSpecs,          Images, FindImageToken, Settings};
  return kFamily;
}

}  // namespace equipoise
