#include "trainer/settings/model_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/yaml_writer.h"
#include "data/text/tokenizer.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/families/model_parts.h"
#include "models/families/modules.h"
#include "models/families/preprocessor.h"
#include "models/families/presets.h"
#include "models/families/resolve_unfreeze.h"
#include "models/spec/image_spec.h"
#include "models/weights/peft_config.h"
#include "trainer/settings/hub_cache.h"

namespace equipoise {
namespace {

// What is said beside a folder of adapters has to be what they are.
void RequireAsFolder(const AdapterSection& given, const LoraConfig& lora) {
  const AdapterSection plain;
  const auto require = [&](const char* key, auto value, auto unsaid, auto theirs) {
    if (value == unsaid || value == theirs) return;
    throw ConfigError(
        fmt::format("model.adapter.{}: {} beside model.adapter.init {}, whose adapters have {}; "
                    "leave it out",
                    key, value, given.init, theirs));
  };
  require("rank", given.rank, plain.rank, lora.rank);
  require("alpha", given.alpha, plain.alpha, lora.alpha);
  require("rslora", given.rslora, plain.rslora, lora.rslora);
  require("dora", given.dora, plain.dora, lora.dora);
}

LoraConfig LoraOf(const AdapterSection& section, const ModelConfig& config) {
  LoraConfig lora;
  if (!section.init.empty()) {
    if (!section.targets.empty() || !section.train.empty()) {
      throw ConfigError(
          fmt::format("model.adapter.targets: given beside model.adapter.init {}, which has its "
                      "own; leave it out",
                      section.init));
    }
    lora = ReadPeftConfig(section.init, config);
    RequireAsFolder(section, lora);
    lora.folder = section.init;
  } else {
    lora.targets = section.targets;
    lora.train = section.train;
    lora.rank = section.rank;
    lora.alpha = section.alpha;
    lora.rslora = section.rslora;
    lora.dora = section.dora;
  }
  lora.dropout = section.dropout;
  return lora;
}

// The first of those keys that say how adapters are which is not at its default.
std::optional<std::string> KeyOfAdapters(const AdapterSection& given) {
  const AdapterSection plain;
  if (given.rank != plain.rank) return "rank";
  if (given.alpha != plain.alpha) return "alpha";
  if (given.dropout != plain.dropout) return "dropout";
  if (given.rslora != plain.rslora) return "rslora";
  if (given.dora != plain.dora) return "dora";
  if (!given.train.empty()) return "train";
  return std::nullopt;
}

void SetDropPath(const ModelSection& model, ModelConfig* config) {
  if (!model.drop_path) return;
  if (!config->has_vision || config->vision.model_type != VisionConfig().model_type) {
    throw ConfigError(fmt::format(
        "model.drop_path: {}: this model has no InternViT, and no other encoder takes it; leave it "
        "out",
        *model.drop_path));
  }
  config->vision.drop_path_rate = *model.drop_path;
}

// Throws for settings of parts that do not go together, or with the others.
void CheckParts(const ModelSection& model) {
  if (model.vision.empty() || model.llm.empty()) {
    const auto [given, missing] =
        model.llm.empty() ? std::pair("vision", "llm") : std::pair("llm", "vision");
    throw ConfigError(
        fmt::format("model.{}: is empty, and model.{} is given; a model from parts takes both",
                    missing, given));
  }
  for (const auto& [key, value] : {std::pair("hf", model.hf), std::pair("preset", model.preset)}) {
    if (value.empty()) continue;
    throw ConfigError(fmt::format(
        "model.{}: {} beside model.vision and model.llm; give the one or the others", key, value));
  }
}

// Throws for settings of the projector's first weights that say nothing.
void CheckProjectorWeights(const ModelSection& model) {
  if (model.projector.weights.empty() || model.init != "random") return;
  throw ConfigError(
      "model.projector.weights: is not read with model.init: random; leave one of them out");
}

// Throws where a projector that is drawn at random would stay as it is.
void RequireProjectorTrained(const ModelSection& model, const ModelConfig& config) {
  if (model.init == "random") return;
  const auto& freeze = model.freeze;
  if (!config.lora.on() && std::find(freeze.begin(), freeze.end(), "projector") != freeze.end()) {
    throw ConfigError(
        "model.freeze: the projector is new, and frozen it would stay as it is drawn; leave it "
        "out, or give a trained one in model.projector.weights");
  }
  if (!config.lora.on()) return;
  for (const LayerSpec& layer : LayerSpecs(config)) {
    if (layer.component != Component::kConnector) continue;
    for (const TensorSpec& tensor : layer.parameters) {
      if (MayTrain(tensor.role)) continue;
      throw ConfigError(
          "model.adapter.train: the projector is new, and beside adapters it would stay as it is "
          "drawn; set train: [multi_modal_projector], or give a trained one in "
          "model.projector.weights");
    }
  }
}

// Why a model takes no limits on the pixels of its pictures, and what to do.
const char* WithoutPixels(ImageSpec::Kind kind) {
  if (kind == ImageSpec::Kind::kNone) return "takes no pictures; leave it out";
  return kind == ImageSpec::Kind::kTiles
             ? "takes pictures as tiles of one size; set data.tiles.max, or leave it out"
             : "takes pictures as squares of one size, whatever theirs is; leave it out";
}

// Modules to quantise say nothing without the form that they get.
void CheckBaseModules(const ModelSection& section, const ModelConfig& model) {
  if (section.base != "none" || model.quantize.packing != Packing::kNone) return;
  if (section.base_modules == ModelSection().base_modules) return;
  throw ConfigError(
      "model.base_modules: has no effect without model.base; set model.base: nf4 or int8, or leave "
      "it out");
}

void SetUnfreeze(const ModelSection& model, ModelConfig* config) {
  if (model.unfreeze.empty()) return;
  if (config->lora.on()) {
    throw ConfigError(
        "model.unfreeze: beside model.adapter, which freezes the model by itself; name what is "
        "trained in full beside adapters in model.adapter.train (its component may stay in "
        "model.freeze), and leave this out");
  }
  CheckModules(*config, model.freeze, "model.freeze");
  ResolveUnfreeze(model.unfreeze, model.freeze, config);
}

// A model from the parts model.vision and model.llm.
ModelConfig JoinedConfig(const ModelSection& model) {
  CheckParts(model);
  CheckProjectorWeights(model);
  const EncoderPart encoder = ReadEncoderPart(model.vision);
  const DecoderPart decoder = ReadDecoderPart(model.llm);
  const std::vector<std::string> tokens = ImageTokensOf(encoder);
  const Tokenizer tokenizer = Tokenizer::Read(model.llm, tokens);
  const int64_t rows = decoder.config.text.vocab_size;
  // Added tokens get rows too, as those of a spare <pad>; the vocabulary itself has them.
  for (auto id = static_cast<int32_t>(rows); id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.FindAdded(id) != nullptr) continue;
    throw DataError(fmt::format(
        "model.llm: {}: the tokenizer has ids up to {} with {} tokens for pictures, vocab_size is "
        "{}; use the model's own tokenizer",
        model.llm, tokenizer.vocab_size() - 1, tokens.size(), rows));
  }
  JoinOptions options;
  options.vocab_size = std::max(rows, tokenizer.vocab_size());
  options.image_token_id = tokenizer.TokenId(PlaceholderOf(encoder)).value();
  options.feature_layer = model.projector.feature_layer;
  options.downsample_ratio = model.projector.downsample_ratio;
  options.projector_bias = model.projector.bias;
  ModelConfig config = JoinParts(encoder, decoder, options);
  SetDropPath(model, &config);
  SetAdapters(model, &config);
  if (!decoder.llava && model.projector.weights.empty()) RequireProjectorTrained(model, config);
  return config;
}

}  // namespace

void SetAdapters(const ModelSection& model, ModelConfig* config) {
  const bool gptq = config->quantize.packing == Packing::kGptq;
  if (gptq && model.base != "none") {
    throw ConfigError(fmt::format(
        "model.base: {} beside a folder whose weights are in GPTQ's form already; leave it out",
        model.base));
  }
  if (gptq) {
    CheckModules(*config, model.base_modules, "model.base_modules");
    config->quantize.components = model.base_modules;
  }
  config->lora = LoraOf(model.adapter, *config);
  config->lora.without = model.freeze;
  if (!config->lora.on()) {
    if (model.base != "none") {
      throw ConfigError(
          "model.base: needs adapters: quantised weights are not trained, and without adapters all "
          "of the model is; set model.adapter.targets, such as [all-linear]");
    }
    // Other programs take a rank for adapters everywhere; here all of the model would be trained,
    // but in GPTQ's form nothing (RequireTrained()).
    if (const auto key = KeyOfAdapters(model.adapter); key && !gptq) {
      throw ConfigError(fmt::format(
          "model.adapter.{}: no layer gets an adapter; set model.adapter.targets, such as "
          "[all-linear], or leave model.adapter out to train the whole model",
          *key));
    }
    return;
  }
  ResolveLora("model.adapter", config);
  if (model.base == "none") return;
  CheckModules(*config, model.base_modules, "model.base_modules");
  config->quantize.packing = model.base == "nf4" ? Packing::kNf4 : Packing::kInt8;
  config->quantize.components = model.base_modules;
}

bool NamesModel(const ModelSection& model) {
  return !(model.hf.empty() && model.preset.empty() && model.vision.empty() && model.llm.empty());
}

namespace {

// The configuration of the model alone, with its adapters.
ModelConfig GivenConfig(const ModelSection& model) {
  if (!model.vision.empty() || !model.llm.empty()) return JoinedConfig(model);
  if (!EqualConfig(model.projector, ProjectorSection())) {
    throw ConfigError(
        "model.projector: is of a model from parts (model.vision and model.llm); leave it out");
  }
  if (!model.hf.empty() && !model.preset.empty()) {
    throw ConfigError(fmt::format("model.preset: {} beside model.hf {}; give one of them",
                                  model.preset, model.hf));
  }
  if (!model.hf.empty() && !std::filesystem::is_directory(model.hf)) {
    throw DataError(
        fmt::format("model.hf: {}: no such folder{}", model.hf, AdviceForMissing(model.hf)));
  }
  if (!model.hf.empty() && !std::filesystem::exists(model.hf + "/config.json") &&
      std::filesystem::is_directory(model.hf + "/checkpoints")) {
    throw DataError(
        fmt::format("model.hf: {}: is a run folder; `equipoise export {} --out FOLDER` makes a "
                    "model's folder of it",
                    model.hf, ShellWord(model.hf)));
  }
  if (!model.hf.empty() && !std::filesystem::exists(model.hf + "/config.json") &&
      !std::filesystem::exists(PeftConfigFile(model.hf))) {
    throw DataError(
        fmt::format("model.hf: {}: has no config.json; give a folder of Hugging Face's form, with "
                    "config.json, tokenizer and weights",
                    model.hf));
  }
  if (!model.hf.empty() || !model.preset.empty()) {
    ModelConfig config = model.hf.empty() ? PresetConfig(model.preset) : ReadModelConfig(model.hf);
    SetDropPath(model, &config);
    SetAdapters(model, &config);
    return config;
  }
  throw ConfigError(
      "model.hf: is empty; give the folder that holds the model's config.json, or model.preset, or "
      "model.vision and model.llm");
}

}  // namespace

ModelConfig ModelConfigOf(const ModelSection& model) {
  ModelConfig config = GivenConfig(model);
  SetUnfreeze(model, &config);
  return config;
}

void RequireTrained(const ModelConfig& config) {
  if (config.quantize.packing != Packing::kGptq || config.lora.on()) return;
  throw ConfigError(
      "model.hf: its weights are in GPTQ's form, and adapters over them alone are trained; set "
      "model.adapter.targets, such as [all-linear]");
}

ModelConfig ModelConfigOf(const RunConfig& config) {
  ModelConfig model = ModelConfigOf(config.model);
  RequireTrained(model);
  CheckBaseModules(config.model, model);
  UsePixels(config.data, &model);
  return model;
}

void UsePixels(const DataConfig& data, ModelConfig* model) {
  const auto check = [&](const char* key, const PixelsConfig& pixels) {
    if (pixels.min == 0 && pixels.max == 0) return;
    try {
      ImageSpecOf(*model);
    } catch (const DataError& error) {
      throw ConfigError(fmt::format("{}: {} to {}: {}", key, pixels.min, pixels.max, error.what()));
    }
  };
  if (data.pad_pictures) {
    if (ImageSpecOf(*model).kind != ImageSpec::Kind::kSquare) {
      throw ConfigError(
          "data.pad_pictures: this model takes no picture as one square; leave it out");
    }
    PadPictures(model);
  }
  const bool limits = data.pixels.min != 0 || data.pixels.max != 0;
  if (limits && !ImageSpecOf(*model).has_grids()) {
    throw ConfigError(fmt::format("data.pixels: {} to {}: this model {}", data.pixels.min,
                                  data.pixels.max, WithoutPixels(ImageSpecOf(*model).kind)));
  }
  model->min_pixels = data.pixels.min;
  model->max_pixels = data.pixels.max;
  check("data.pixels", data.pixels);
  if ((data.video_pixels.min != 0 || data.video_pixels.max != 0) &&
      !ImageSpecOf(*model).has_grids()) {
    throw ConfigError(fmt::format(
        "data.video_pixels: {} to {}: this model takes frames of videos in one size, whatever "
        "theirs is; leave it out",
        data.video_pixels.min, data.video_pixels.max));
  }
  model->min_video_pixels = data.video_pixels.min;
  model->max_video_pixels = data.video_pixels.max;
  check("data.video_pixels", data.video_pixels);
}

}  // namespace equipoise
