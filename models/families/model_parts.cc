#include "models/families/model_parts.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/preprocessor.h"
#include "models/spec/config_section.h"

// The joined model is described by the config.json that Transformers would write for it: the parts'
// own keys under vision_config and text_config, and between them the defaults of LLaVA-1.5 or
// InternVL. The family's own reader then checks it as it checks a whole model's.

namespace equipoise {
namespace {

// Reads FOLDER/config.json, the value of the setting `key`.
Json ReadFolderConfig(const char* key, const std::string& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw DataError(fmt::format(
        "{}: {}: no such folder; download or prepare the model first, or correct the path", key,
        folder));
  }
  const std::string path = folder + "/config.json";
  if (!std::filesystem::exists(path)) {
    throw DataError(fmt::format(
        "{}: {}: has no config.json; give a folder in the form of Hugging Face", key, folder));
  }
  const Json json = ReadJsonFile(path);
  if (!json.is_object()) throw DataError(path + ": not a JSON object");
  if (ConfigSection{json, path}.Has("quantization_config")) {
    throw DataError(path + ": quantised weights are not supported; use the original ones");
  }
  return json;
}

// The encoder's keys of a CLIP or SigLIP model with a text model beside it, or without.
Json VisionSection(const Json& json, const std::string& model_type, const std::string& path) {
  Json section = json;
  if (GetString(json, "model_type", path) != model_type) {
    section = Subsection({json, path}, "vision_config").json;
  }
  section["model_type"] = model_type;
  return section;
}

// The language model's keys, as a `text_config`.
Json TextSection(ModelConfig decoder, int64_t vocab_size) {
  decoder.text.vocab_size = vocab_size;
  Json json = ToHuggingFace(decoder);
  for (const char* key : {"architectures", "auto_map", "_name_or_path"}) json.erase(key);
  return json;
}

// InternLM2 in the form of Transformers' LLaMA. Of the keys of its own code none is LLaMA's.
ModelConfig AsLlama(ModelConfig decoder) {
  EQUIPOISE_CHECK(decoder.model_type == "internlm2", decoder.model_type);
  decoder.model_type = decoder.text.model_type = "llama";
  decoder.naming = WeightNaming::kTransformers;
  decoder.source = {};
  return decoder;
}

[[noreturn]] void RefuseFeatureLayer(int64_t layer, const std::string& what) {
  throw ConfigError(fmt::format("model.projector.feature_layer: {} {}", layer, what));
}

Json LlavaJson(const EncoderPart& encoder, const ModelConfig& decoder, const JoinOptions& options) {
  if (options.downsample_ratio != 0) {
    throw ConfigError(
        "model.projector.downsample_ratio: is of InternViT, whose patches are joined; leave it out "
        "for CLIP and SigLIP");
  }
  const bool clip = encoder.config["model_type"] == "clip_vision_model";
  const int64_t layers =
      GetInt(encoder.config, "num_hidden_layers", encoder.folder + "/config.json", 12);
  const int64_t layer = options.feature_layer == 0 ? -2 : options.feature_layer;
  if (layer > layers || layer < -layers) {
    RefuseFeatureLayer(layer, fmt::format("is none of the encoder's {} layers", layers));
  }
  return {{"model_type", "llava"},
          {"vision_config", encoder.config},
          {"text_config", TextSection(decoder, options.vocab_size)},
          {"image_token_index", options.image_token_id},
          {"vision_feature_layer", layer},
          {"vision_feature_select_strategy", clip ? "default" : "full"},
          {"projector_hidden_act", "gelu"},
          {"multimodal_projector_bias", options.projector_bias},
          {"tie_word_embeddings", decoder.text.tie_word_embeddings}};
}

// The vision_config of Transformers for one in OpenGVLab's form.
Json TransformersVision(const Json& original, const Json& text, const std::string& where) {
  ModelConfig config =
      ParseModelConfig({{"model_type", "internvl_chat"},
                        {"vision_config", original},
                        {"llm_config", text},
                        {"downsample_ratio", 1},  // which divides any number of patches
                        {"ps_version", "v2"}},
                       where);
  if (config.vision.use_qk_norm && config.vision.layer_norm_eps != 1e-6) {
    throw DataError(
        fmt::format("{}: layer_norm_eps: {} is not supported with qk_normalization, only 1e-06 is",
                    where, config.vision.layer_norm_eps));
  }
  config.naming = WeightNaming::kTransformers;
  config.source = {};
  Json vision = ToHuggingFace(config)["vision_config"];
  // Of OpenGVLab's code alone; Transformers passes over it.
  if (config.vision.drop_path_rate > 0) vision["drop_path_rate"] = config.vision.drop_path_rate;
  return vision;
}

Json InternVlJson(const EncoderPart& encoder, const ModelConfig& decoder,
                  const JoinOptions& options) {
  if (!options.projector_bias) {
    throw ConfigError(
        "model.projector.bias: false is of LLaVA's form; InternVL's projector has biases, leave it "
        "out for InternViT");
  }
  if (options.feature_layer != 0 && options.feature_layer != -1) {
    RefuseFeatureLayer(options.feature_layer, "is not supported for InternViT, only -1, the last");
  }
  const Json text = TextSection(decoder, options.vocab_size);
  Json vision = encoder.config;
  if (vision["model_type"] == "intern_vit_6b") {
    vision = TransformersVision(vision, text, encoder.folder + "/config.json");
  }
  return {{"model_type", "internvl"},
          {"vision_config", vision},
          {"text_config", text},
          {"image_token_id", options.image_token_id},
          {"downsample_ratio", options.downsample_ratio == 0 ? 0.5 : options.downsample_ratio},
          {"vision_feature_layer", -1},
          {"vision_feature_select_strategy", "default"},
          {"projector_hidden_act", "gelu"},
          {"tie_word_embeddings", decoder.text.tie_word_embeddings}};
}

// Throws for an encoder of another width than that of the one that LLaVA's projector is for.
void RequireWidth(const OriginalLlava& llava, const EncoderPart& encoder, int64_t width) {
  if (llava.encoder_width == 0 || llava.encoder_width == width) return;
  throw DataError(fmt::format(
      "model.vision: {}: has rows of {} elements, and the projector of model.llm takes rows of {} "
      "(mm_hidden_size); give the folder of {}",
      encoder.folder, width, llava.encoder_width, llava.encoder));
}

// Other encoders name a published model_type too, such as EVA-CLIP's clip. `begin`: of the classes
// of that type.
void RequireClass(const Json& json, std::string_view begin, const std::string& path) {
  if (!json.contains("architectures") || !json["architectures"].is_array()) return;
  for (const Json& name : json["architectures"]) {
    if (!name.is_string() || name.get_ref<const std::string&>().starts_with(begin)) continue;
    throw DataError(fmt::format(
        "model.vision: {}: architectures: {} is another model than those of {}; give a folder of "
        "CLIPModel, SiglipModel or InternViT",
        path, name.get<std::string>(), begin));
  }
}

}  // namespace

EncoderPart ReadEncoderPart(const std::string& folder) {
  const Json json = ReadFolderConfig("model.vision", folder);
  const std::string path = folder + "/config.json";
  const std::string type = GetString(json, "model_type", path);
  EncoderPart part;
  part.folder = folder;
  part.prefix = kVisionTower;
  if (type == "clip" || type == "clip_vision_model") {
    RequireClass(json, "CLIP", path);
    part.config = VisionSection(json, "clip_vision_model", path);
  } else if (type == "siglip" || type == "siglip_vision_model") {
    RequireClass(json, "Siglip", path);
    part.config = VisionSection(json, "siglip_vision_model", path);
  } else if (type == "intern_vit_6b" || type == "internvl_vision") {
    RequireClass(json, "Intern", path);
    part.internvit = true;
    part.config = json;
    if (type == "intern_vit_6b") part.prefix = "vision_model.";
  } else {
    throw DataError(fmt::format(
        "model.vision: {}: model_type: '{}' is no image encoder that a model can be joined of; "
        "give a folder of clip, siglip or InternViT (intern_vit_6b, internvl_vision)",
        path, type));
  }
  for (const char* key : {"architectures", "auto_map", "_name_or_path", "transformers_version"})
    part.config.erase(key);
  return part;
}

DecoderPart ReadDecoderPart(const std::string& folder) {
  const Json json = ReadFolderConfig("model.llm", folder);
  const std::string path = folder + "/config.json";
  DecoderPart part;
  part.folder = folder;
  const ConfigSection top{json, "model.llm: " + path};
  if (IsOriginalLlava(top)) part.llava = ParseOriginalLlava(top);
  part.config = ParseModelConfig(part.llava ? part.llava->decoder : json, top.where);
  if (part.config.has_vision) {
    throw DataError(fmt::format(
        "model.llm: {}: model_type: '{}' has an image encoder already; give it as model.hf, or the "
        "folder of a language model alone",
        path, part.config.model_type));
  }
  part.model_type = part.config.model_type;
  if (part.config.naming != WeightNaming::kTransformers) part.config = AsLlama(part.config);
  if (part.llava) part.config.source = {};  // keys of LLaVA's code are no language model's
  return part;
}

std::optional<std::string> EncoderNamedIn(const std::string& folder) {
  try {
    const Json json = ReadFolderConfig("model.hf", folder);
    const ConfigSection top{json, folder + "/config.json"};
    if (IsOriginalLlava(top)) return ParseOriginalLlava(top).encoder;
  } catch (const DataError&) {
    return std::nullopt;  // told by who reads it for what it is
  }
  return std::nullopt;
}

WeightNames DecoderNames(const DecoderPart& decoder, const ModelConfig& joined) {
  ModelConfig named = joined;
  named.text.model_type = decoder.model_type;
  if (!decoder.llava) return WeightNamesOf(named);
  return WeightNamesOf(named, OriginalLlavaNames(kLanguageModelPrefix));
}

std::vector<std::string> ImageTokensOf(const EncoderPart& encoder) {
  if (!encoder.internvit) return {"<image>"};
  return {"<img>", "</img>", "<IMG_CONTEXT>", "<quad>", "</quad>",
          "<ref>", "</ref>", "<box>",         "</box>"};
}

std::string PlaceholderOf(const EncoderPart& encoder) {
  return encoder.internvit ? "<IMG_CONTEXT>" : "<image>";
}

ModelConfig JoinParts(const EncoderPart& encoder, const DecoderPart& decoder,
                      const JoinOptions& given) {
  JoinOptions options = given;
  if (decoder.llava && encoder.internvit) {
    throw DataError(fmt::format(
        "model.vision: {}: is an InternViT, and model.llm has a projector in LLaVA's original "
        "form; give the folder of {}",
        encoder.folder, decoder.llava->encoder));
  }
  if (decoder.llava && options.feature_layer == 0)
    options.feature_layer = decoder.llava->feature_layer;
  const Json json = encoder.internvit ? InternVlJson(encoder, decoder.config, options)
                                      : LlavaJson(encoder, decoder.config, options);
  ModelConfig config = ParseModelConfig(json, "model.vision: " + encoder.folder + "/config.json");
  config.preprocessor = ReadPreprocessor(encoder.folder);
  if (decoder.llava) RequireWidth(*decoder.llava, encoder, config.vision.hidden_size);
  if (decoder.llava && decoder.llava->pads) PadPictures(&config);
  try {
    ImageSpecOf(config);
  } catch (const DataError& error) {
    throw DataError(fmt::format("model.vision: {}: {}", encoder.folder, error.what()));
  }
  return config;
}

}  // namespace equipoise
