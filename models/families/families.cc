#include "models/families/families.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "configs/base/error.h"
#include "models/families/adapters.h"
#include "models/families/decoder_config.h"
#include "models/families/decoder_families.h"
#include "models/families/encoder_families.h"
#include "models/families/llava/original_llava.h"
#include "models/families/preprocessor.h"
#include "models/families/quantization.h"
#include "models/families/text_specs.h"
#include "models/families/unfreeze.h"

namespace equipoise {
namespace {

// Prefix of a language model's names where there is an encoder.
constexpr char kLanguageModel[] = "language_model.";

const EncoderFamily& EncoderOf(const ModelConfig& config) {
  const EncoderFamily* family = FindEncoderFamily(config.model_type);
  EQUIPOISE_CHECK(family != nullptr, config.model_type);
  return *family;
}

std::vector<std::string> ModelTypes() {
  std::vector<std::string> types = DecoderModelTypes();
  for (const EncoderFamily* family : EncoderFamilies()) {
    types.insert(types.begin(), family->model_types.begin(), family->model_types.end());
  }
  return types;
}

}  // namespace

void ValidateModelConfig(const ModelConfig& config, const std::string& source) {
  if (config.has_vision) return EncoderOf(config).validate(config, source);
  ValidateDecoder(config.text, source);
}

ModelConfig ParseModelConfig(const Json& json, const std::string& source) {
  if (!json.is_object()) throw DataError(source + ": not a JSON object");
  const ConfigSection top{json, source};
  ModelConfig config;
  config.model_type = GetString(json, "model_type", source);
  RefuseOriginalLlava(top);
  config.quantize = ParseQuantization(top);
  if (const EncoderFamily* encoder = FindEncoderFamily(config.model_type)) {
    encoder->parse(top, &config);
    const DecoderFamily* decoder = FindDecoderFamily(config.text.model_type);
    const bool own_form = decoder != nullptr && decoder->naming == WeightNaming::kOriginal;
    if (own_form && config.naming != WeightNaming::kOriginal) {
      top.Refuse("text_config", fmt::format("model_type '{}' behind an encoder is supported in "
                                            "OpenGVLab's form alone",
                                            decoder->model_type));
    }
  } else if (const DecoderFamily* decoder = FindDecoderFamily(config.model_type)) {
    config.text = ParseDecoder(top);
    config.naming = decoder->naming;
  } else {
    top.Refuse("model_type", fmt::format("'{}' is not supported; use {}", config.model_type,
                                         ChoicesText(ModelTypes())));
  }
  config.source = json;
  ValidateModelConfig(config, source);
  return config;
}

ModelConfig ReadModelConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!std::filesystem::exists(path) && std::filesystem::exists(folder + "/adapter_config.json")) {
    throw DataError(
        folder +
        ": adapters of PEFT, not a model; give the model that they were trained on, and the folder "
        "as `--adapter` (generate) or model.adapter.init (train)");
  }
  ModelConfig config = ParseModelConfig(ReadJsonFile(path), path);
  if (config.has_vision) {
    config.preprocessor = ReadPreprocessor(folder);
    config.video_preprocessor = ReadVideoPreprocessor(folder);
    const auto find_naming = EncoderOf(config).find_naming;
    if (find_naming != nullptr) find_naming(folder, &config);
    try {
      EncoderOf(config).images(config);
    } catch (const DataError& error) {
      throw DataError(fmt::format("{}: {}", folder, error.what()));
    }
  }
  if (config.has_vision && config.image_token_id < 0) {
    config.image_token_id = EncoderOf(config).find_image_token(folder);
    ValidateModelConfig(config, path);
  }
  return config;
}

std::vector<std::string> IgnoredSettings(const ModelConfig& config) {
  std::vector<std::string> lines;
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
  Json json = config.source.is_object() ? config.source : Json::object();
  if (config.naming == WeightNaming::kTransformers || !config.has_vision) {
    // Every key whose default depends on the version is written; the source's version is dropped.
    json.erase("transformers_version");
    json["model_type"] = config.model_type;
    json["dtype"] = json["torch_dtype"] = "float32";
  }
  if (config.has_vision) {
    EncoderOf(config).write(config, &json);
    return json;
  }
  json["architectures"] = {FindDecoderFamily(config.model_type)->architecture};
  WriteDecoder(config.text, &json);
  return json;
}

std::vector<LayerSpec> LayerSpecs(const ModelConfig& config, int tensor_ranks) {
  std::vector<LayerSpec> specs;
  if (config.has_vision) specs = EncoderOf(config).layers(config, tensor_ranks);
  const std::string prefix = config.has_vision ? kLanguageModel : "";
  std::vector<LayerSpec> text = TextSpecs(config.text, prefix, tensor_ranks);
  specs.insert(specs.end(), text.begin(), text.end());
  AddAdapters(config, tensor_ranks, &specs);
  MarkUnfrozen(config, &specs);
  return specs;
}

ImageSpec ImageSpecOf(const ModelConfig& config) {
  return config.has_vision ? EncoderOf(config).images(config) : ImageSpec{};
}

FolderSettings FolderSettingsOf(const ModelConfig& config, const std::string& folder) {
  return config.has_vision ? EncoderOf(config).folder_settings(config, folder) : FolderSettings{};
}

WeightNames WeightNamesOf(const ModelConfig& config, const std::vector<Renaming>& more) {
  std::vector<Renaming> renamings, of_decoder, in_memory;
  if (config.has_vision) {
    const EncoderFamily& encoder = EncoderOf(config);
    renamings = encoder.renamings(config);
    if (encoder.in_memory != nullptr) in_memory = encoder.in_memory(config);
  }
  const DecoderFamily* decoder = FindDecoderFamily(config.text.model_type);
  if (decoder != nullptr && decoder->renamings != nullptr) {
    const std::string prefix = config.has_vision ? kLanguageModel : "";
    for (Renaming& row : decoder->renamings(config.text)) {
      of_decoder.push_back({prefix + row.ours, prefix + row.theirs, row.rows});
    }
  }
  renamings.insert(renamings.end(), more.begin(), more.end());
  return {config, std::move(renamings), of_decoder, std::move(in_memory)};
}

}  // namespace equipoise
