#include "models/families/qwen2_vl/qwen2_vl.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "models/families/decoder_config.h"
#include "models/families/qwen2_vl/encoder_specs.h"
#include "models/families/qwen2_vl/image_settings.h"

namespace equipoise {
namespace {

constexpr char kQwen2[] = "qwen2_vl", kQwen25[] = "qwen2_5_vl", kQwen3[] = "qwen3_vl";
// Names the naming in the config.json of a run, whose folder has no weights to tell it.
constexpr char kNamesKey[] = "weight_names", kModules[] = "modules";

std::vector<int64_t> Numbers(const ConfigSection& section, const char* key,
                             const std::vector<int64_t>& fallback) {
  if (!section.Has(key)) return fallback;
  std::vector<int64_t> numbers;
  if (!section.json[key].is_array()) section.Refuse(key, "not a list of whole numbers");
  for (const Json& number : section.json[key]) {
    if (!number.is_number_integer() || number < 0 || number > kMaxWidth) {
      section.Refuse(key, "not a list of whole numbers from 0 on");
    }
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

// What Qwen3-VL's encoder has in other ways than those before it.
void ParseQwen3Vision(const ConfigSection& section, VisionConfig* vision) {
  vision->hidden_act = "gelu_pytorch_tanh";
  section.RequireText("hidden_act", vision->hidden_act);
  vision->intermediate_size = section.Size("intermediate_size", kMaxWidth, 4304);
  vision->num_position_embeddings = section.Size("num_position_embeddings", kMaxWidth, 2304);
  const int64_t side = PositionSide(*vision);
  if (side * side != vision->num_position_embeddings) {
    section.Refuse("num_position_embeddings",
                   fmt::format("{} is not a square", vision->num_position_embeddings));
  }
  const std::vector<int64_t> features = Numbers(section, "deepstack_visual_indexes", {8, 16, 24});
  const bool ascending = std::adjacent_find(features.begin(), features.end(),
                                            std::greater_equal<>()) == features.end();
  if (!ascending || (!features.empty() && features.back() >= vision->num_hidden_layers)) {
    section.Refuse("deepstack_visual_indexes", "must be ascending numbers of blocks");
  }
  vision->deepstack_visual_indexes = features;
}

// Absent keys have the defaults of Transformers' Qwen2VLVisionConfig, Qwen2_5_VLVisionConfig and
// Qwen3VLVisionConfig. Sizes of the language model's rows (hidden_size of Qwen2-VL,
// out_hidden_size) are its own.
VisionConfig ParseVision(const ConfigSection& section, const std::string& model_type,
                         int64_t rows) {
  const bool first = model_type == kQwen2, third = model_type == kQwen3;
  VisionConfig vision;
  vision.model_type = model_type + "_vision";
  vision.hidden_size = section.Size(first ? "embed_dim" : "hidden_size", kMaxWidth,
                                    first   ? 1280
                                    : third ? 1152
                                            : 3584);
  vision.num_hidden_layers = section.Size("depth", kMaxLayers, third ? 27 : 32);
  vision.num_attention_heads = section.Size("num_heads", kMaxWidth, 16);
  vision.patch_size = section.Square("patch_size", kMaxPixels, third ? 16 : 14);
  vision.temporal_patch_size = section.Size("temporal_patch_size", 64, 2);
  vision.initializer_range = section.InitialScale("initializer_range", 0.02);
  vision.attention_bias = true;
  vision.class_token = false;
  for (const char* key : {"in_channels", "in_chans"}) {
    if (section.Size(key, 1024, 3) != 3) section.Refuse(key, "only 3, RGB, is supported");
  }
  const char* out = first ? "hidden_size" : "out_hidden_size";
  if (section.Size(out, kMaxWidth, 3584) != rows) {
    section.Refuse(out, fmt::format("is not the hidden_size of the language model, {}", rows));
  }
  if (section.Has("rope_parameters")) {
    vision.rope_theta = Subsection(section, "rope_parameters").Positive("rope_theta", 10000.0);
  }
  if (first) {
    vision.intermediate_size = vision.hidden_size * section.Size("mlp_ratio", 1024, 4);
    vision.hidden_act = GetString(section.json, "hidden_act", section.where, "quick_gelu");
    if (vision.hidden_act != "quick_gelu" && vision.hidden_act != "gelu") {
      section.Refuse(
          "hidden_act",
          fmt::format("'{}' is not supported, only quick_gelu and gelu are", vision.hidden_act));
    }
    return vision;
  }
  if (third) {
    ParseQwen3Vision(section, &vision);
    return vision;
  }
  vision.norm_type = "rms_norm";
  vision.hidden_act = "silu";
  section.RequireText("hidden_act", "silu");
  vision.intermediate_size = section.Size("intermediate_size", kMaxWidth, 3420);
  vision.window_size = section.Size("window_size", kMaxPixels, 112);
  vision.tokens_per_second = section.Size("tokens_per_second", kMaxWidth, 4);
  vision.full_attention = Numbers(section, "fullatt_block_indexes", {7, 15, 23, 31});
  return vision;
}

// The language model, whose keys lie in text_config or, in published folders, beside the others.
TextConfig ParseText(const ConfigSection& top, bool third) {
  const bool flat = !top.Has("text_config");
  const ConfigSection section = flat ? top : Subsection(top, "text_config");
  Json json = {{"rms_norm_eps", 1e-5},   {"rope_theta", 1e6},        {"bos_token_id", 151643},
               {"eos_token_id", 151645}, {"num_key_value_heads", 8}, {"vocab_size", 152064}};
  if (third) {
    json = {{"rope_theta", 5e5},
            {"num_key_value_heads", 32},
            {"vocab_size", 151936},
            {"max_position_embeddings", 128000}};
  }
  json.update(section.json);
  json["model_type"] = third ? "qwen3" : "qwen2";
  std::vector<int64_t> sections = {16, 24, 24};
  if (third) sections = {24, 20, 20};
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!section.Has(key)) continue;
    const ConfigSection rope = Subsection(section, key);
    sections = Numbers(rope, "mrope_section", sections);
    for (const char* type : {"type", "rope_type"}) {
      if (GetString(rope.json, type, rope.where, "") == "mrope") json[key][type] = "default";
    }
    if (json[key].contains("rope_type")) json[key].erase("type");
  }
  TextConfig text = ParseDecoder({json, section.where});
  // As in Transformers, either key ties the head.
  text.tie_word_embeddings |= top.Flag("tie_word_embeddings", false);
  text.mrope_section = sections;
  text.mrope_interleaved = third;
  return text;
}

void Parse(const ConfigSection& top, ModelConfig* config) {
  const bool third = config->model_type == kQwen3;
  config->has_vision = true;
  const std::string names = GetString(top.json, kNamesKey, top.where, "");
  const bool modules = third || names == kModules;
  config->naming = modules ? WeightNaming::kModules : WeightNaming::kOriginal;
  config->text = ParseText(top, third);
  const ConfigSection vision = Subsection(top, "vision_config");
  config->vision = ParseVision(vision, config->model_type, config->text.hidden_size);
  config->text.deepstack_layers = std::ssize(config->vision.deepstack_visual_indexes);
  config->downsample_ratio = 1.0 / static_cast<double>(vision.Size("spatial_merge_size", 1024, 2));
  config->image_token_id = GetInt(top.json, "image_token_id", top.where, 151655);
  config->video_token_id = GetInt(top.json, "video_token_id", top.where, 151656);
}

void Validate(const ModelConfig& config, const std::string& where) {
  ValidateDecoder(config.text, where);
  const VisionConfig& vision = config.vision;
  const auto refuse = [&](const std::string& what) { throw DataError(where + ": " + what); };
  if (vision.hidden_size % vision.num_attention_heads != 0 ||
      vision.hidden_size / vision.num_attention_heads % 4 != 0) {
    refuse(
        fmt::format("vision_config: {} for {} heads: a head's size must be a multiple of 4, for "
                    "the positions of rows and columns",
                    vision.hidden_size, vision.num_attention_heads));
  }
  const std::vector<int64_t>& sections = config.text.mrope_section;
  if (std::accumulate(sections.begin(), sections.end(), int64_t{0}) * 2 != config.text.head_dim) {
    refuse(fmt::format("mrope_section: must add up to half of a head's {} elements",
                       config.text.head_dim));
  }
  // These two choose frequencies by a sequence's length, which positions of grids do not tell.
  if (config.text.rope_type == "dynamic" || config.text.rope_type == "longrope") {
    refuse(
        fmt::format("rope_type: '{}' is not supported with mrope_section", config.text.rope_type));
  }
  if (config.text.deepstack_layers > config.text.num_hidden_layers) {
    refuse(
        fmt::format("vision_config: deepstack_visual_indexes: {} features for {} layers of the "
                    "language model",
                    config.text.deepstack_layers, config.text.num_hidden_layers));
  }
  if (vision.window_size > 0 && vision.window_size < vision.patch_size * config.shuffle()) {
    refuse(fmt::format("vision_config: window_size: {} is less than the {} pixels of a token",
                       vision.window_size, vision.patch_size * config.shuffle()));
  }
  if (config.image_token_id < 0 || config.image_token_id >= config.text.vocab_size) {
    refuse(fmt::format("image_token_id: {} is outside the vocabulary of {}", config.image_token_id,
                       config.text.vocab_size));
  }
}

void WriteVision(const ModelConfig& config, Json* json) {
  const VisionConfig& vision = config.vision;
  const int64_t rows = config.text.hidden_size;
  json->update({{"model_type", vision.model_type},
                {"depth", vision.num_hidden_layers},
                {"num_heads", vision.num_attention_heads},
                {"in_channels", vision.num_channels},
                {"patch_size", vision.patch_size},
                {"spatial_merge_size", config.shuffle()},
                {"temporal_patch_size", vision.temporal_patch_size},
                {"hidden_act", vision.hidden_act},
                {"initializer_range", vision.initializer_range}});
  if (config.model_type == kQwen2) {
    json->update({{"embed_dim", vision.hidden_size},
                  {"hidden_size", rows},
                  {"mlp_ratio", vision.intermediate_size / vision.hidden_size}});
    return;
  }
  json->update({{"hidden_size", vision.hidden_size},
                {"out_hidden_size", rows},
                {"intermediate_size", vision.intermediate_size}});
  if (config.model_type == kQwen3) {
    json->update({{"num_position_embeddings", vision.num_position_embeddings},
                  {"deepstack_visual_indexes", vision.deepstack_visual_indexes}});
  } else {
    json->update({{"window_size", vision.window_size},
                  {"tokens_per_second", vision.tokens_per_second},
                  {"fullatt_block_indexes", vision.full_attention}});
  }
}

const char* Architecture(const std::string& model_type) {
  if (model_type == kQwen2) return "Qwen2VLForConditionalGeneration";
  return model_type == kQwen3 ? "Qwen3VLForConditionalGeneration"
                              : "Qwen2_5_VLForConditionalGeneration";
}

// Training changes no key: a folder's config.json stays as it is. A whole one is written for a
// model that was made in code.
void Write(const ModelConfig& config, Json* json) {
  (*json)["torch_dtype"] = "float32";
  const bool third = config.model_type == kQwen3;
  if (config.naming == WeightNaming::kModules && !third) (*json)[kNamesKey] = kModules;
  if (json->contains("vision_config")) return;
  json->update({{"model_type", config.model_type},
                {"architectures", {Architecture(config.model_type)}},
                {"image_token_id", config.image_token_id},
                {"video_token_id", config.video_token_id},
                {"tie_word_embeddings", config.text.tie_word_embeddings}});
  Json& text = (*json)["text_config"];
  WriteDecoder(config.text, &text);
  text["model_type"] = config.model_type + "_text";
  text["rope_parameters"]["mrope_section"] = config.text.mrope_section;
  text["rope_scaling"] = {{"type", third ? "default" : "mrope"},
                          {"mrope_section", config.text.mrope_section}};
  if (config.text.rope_type != "default") text["rope_scaling"] = text["rope_parameters"];
  if (third) {
    text["rope_scaling"]["rope_type"] = config.text.rope_type;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      text[key]["mrope_interleaved"] = true;
    }
  }
  WriteVision(config, &(*json)["vision_config"]);
}

// Renamings of one form of folders: prefixes of the encoder's names and of the decoder's.
void AddForm(const std::string& visual, const std::string& text, std::vector<Renaming>* rows) {
  const std::string ours = "visual.blocks.#.", theirs = visual + "blocks.#.";
  int64_t part = 0;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    rows->push_back({ours + "attn." + name, theirs + "attn.qkv", {part++, 1, 3, 1}});
  }
  for (const char* name : {"attn.proj", "mlp", "norm1", "norm2"}) {
    rows->push_back({ours + name, theirs + name, {}});
  }
  for (const char* name : {"merger", "deepstack_merger_list", "patch_embed", "pos_embed"}) {
    rows->push_back({std::string("visual.") + name, visual + name, {}});
  }
  for (const char* name : {"layers", "embed_tokens", "norm"}) {
    rows->push_back({std::string("language_model.model.") + name, text + name, {}});
  }
}

// Published folders and those that Transformers writes, and names of its modules: the model's own
// form first, in which it is exported.
std::vector<Renaming> Renamings(const ModelConfig& config) {
  std::vector<Renaming> rows = {{"language_model.lm_head", "lm_head", {}}};
  const bool modules = config.naming == WeightNaming::kModules;
  if (modules) AddForm("model.visual.", "model.language_model.", &rows);
  AddForm("visual.", "model.", &rows);
  if (!modules) AddForm("model.visual.", "model.language_model.", &rows);
  return rows;
}

// Transformers' modules, whatever the folder's names: it renames published weights as it loads
// them.
std::vector<Renaming> InMemory(const ModelConfig& /*config*/) {
  std::vector<Renaming> rows = {{"language_model.lm_head", "lm_head", {}}};
  AddForm("model.visual.", "model.language_model.", &rows);
  return rows;
}

int64_t FindImageToken(const std::string& /*folder*/) { return -1; }

FolderSettings Settings(const ModelConfig& config, const std::string& /*folder*/) {
  FolderSettings settings;
  // Qwen3-VL's has no system text of its own.
  settings.default_template = config.model_type == kQwen3 ? "chatml" : "qwen2-vl";
  return settings;
}

// Whether the weights have the names of modules: told by the index, or by the beginning of the
// only file, where the names are.
void FindNaming(const std::string& folder, ModelConfig* config) {
  for (const char* name : {"/model.safetensors.index.json", "/model.safetensors"}) {
    std::ifstream file(folder + name, std::ios::binary);
    if (!file) continue;
    constexpr size_t kMost = size_t{1} << 20;  // the encoder's names are within it
    std::string text(kMost, '\0');
    file.read(text.data(), static_cast<std::streamsize>(kMost));
    if (text.find("\"model.visual.") != text.npos) config->naming = WeightNaming::kModules;
    return;
  }
}

}  // namespace

const EncoderFamily& Qwen2Vl() {
  static const EncoderFamily kFamily = {{kQwen2, kQwen25, kQwen3},
                                        Parse,
                                        Validate,
                                        Write,
                                        Renamings,
                                        Qwen2VlEncoderSpecs,
                                        Qwen2VlImages,
                                        FindImageToken,
                                        Settings,
                                        FindNaming,
                                        InMemory};
  return kFamily;
}

}  // namespace equipoise
