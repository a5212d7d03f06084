#include "trainer/settings/model_section.h"

#include <fmt/format.h>

#include <filesystem>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"

namespace equipoise {

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
  if (!model.hf.empty()) return ReadModelConfig(model.hf);
  if (!model.preset.empty()) return PresetConfig(model.preset);
  throw ConfigError(
      "model.hf: is empty; give the folder that holds the model's config.json, or model.preset");
}

}  // namespace equipoise
