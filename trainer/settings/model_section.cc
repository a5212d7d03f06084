#include "trainer/settings/model_section.h"

#include <fmt/format.h>

#include <filesystem>

#include "configs/base/error.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "models/families/presets.h"
#include "models/weights/peft_config.h"

namespace equipoise {
namespace {

LoraConfig LoraOf(const LoraSection& section, const ModelConfig& config) {
  LoraConfig lora;
  if (!section.adapter.empty()) {
    if (!section.targets.empty() || !section.train.empty()) {
      throw ConfigError(fmt::format(
          "model.lora.targets: given beside model.lora.adapter {}, which has its own; leave it out",
          section.adapter));
    }
    lora = ReadPeftConfig(section.adapter, config);
    lora.folder = section.adapter;
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

}  // namespace

void SetAdapters(const ModelSection& model, ModelConfig* config) {
  config->lora = LoraOf(model.lora, *config);
  config->lora.without = model.freeze;
  if (!config->lora.on()) {
    if (model.quantize == "none" && model.lora.train.empty()) return;
    const char* key = model.quantize == "none" ? "lora.train" : "quantize";
    throw ConfigError(fmt::format(
        "model.{}: needs adapters: quantised weights are not trained, and without adapters all of "
        "the model is; set model.lora.targets, such as [all-linear]",
        key));
  }
  ResolveLora("model.lora", config);
  if (model.quantize == "none") return;
  CheckModules(*config, model.quantize_modules, "model.quantize_modules");
  config->quantize.packing = model.quantize == "nf4" ? Packing::kNf4 : Packing::kInt8;
  config->quantize.components = model.quantize_modules;
}

ModelConfig ModelConfigOf(const ModelSection& model) {
  if (!model.hf.empty() && !model.preset.empty()) {
    throw ConfigError(fmt::format("model.preset: {} beside model.hf {}; give one of them",
                                  model.preset, model.hf));
  }
  if (!model.hf.empty() && !std::filesystem::is_directory(model.hf)) {
    throw DataError(fmt::format(
        "model.hf: {}: no such folder; download or prepare the model first, or correct the path",
        model.hf));
  }
  if (!model.hf.empty() && !std::filesystem::exists(model.hf + "/config.json") &&
      std::filesystem::is_directory(model.hf + "/checkpoints")) {
    throw DataError(
        fmt::format("model.hf: {0}: is a run folder; `equipoise export {0} --out FOLDER` makes a "
                    "model's folder of it",
                    model.hf));
  }
  if (!model.hf.empty() || !model.preset.empty()) {
    ModelConfig config = model.hf.empty() ? PresetConfig(model.preset) : ReadModelConfig(model.hf);
    SetAdapters(model, &config);
    return config;
  }
  throw ConfigError(
      "model.hf: is empty; give the folder that holds the model's config.json, or model.preset");
}

ModelConfig ModelConfigOf(const RunConfig& config) {
  ModelConfig model = ModelConfigOf(config.model);
  UsePixels(config.data.pixels, &model);
  return model;
}

void UsePixels(const PixelsConfig& pixels, ModelConfig* model) {
  model->min_pixels = pixels.min;
  model->max_pixels = pixels.max;
  if (pixels.min == 0 && pixels.max == 0) return;
  try {
    ImageSpecOf(*model);
  } catch (const DataError& error) {
    throw ConfigError(
        fmt::format("data.pixels: {} to {}: {}", pixels.min, pixels.max, error.what()));
  }
}

}  // namespace equipoise
