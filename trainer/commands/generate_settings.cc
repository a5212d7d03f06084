#include "trainer/commands/generate_settings.h"

#include <spdlog/spdlog.h>

#include "configs/yaml/overrides.h"
#include "configs/yaml/yaml_reader.h"
#include "data/settings/chat_templates.h"
#include "data/text/folder_template.h"
#include "models/families/families.h"
#include "models/families/preprocessor.h"
#include "trainer/settings/own_template.h"

namespace equipoise {
namespace {

// Applies the settings that a Hugging Face folder specifies.
void ApplySettings(const ModelConfig& model, const std::string& folder, DataConfig& data) {
  const FolderSettings settings = FolderSettingsOf(model, folder);
  data.tiles.min = settings.min_tiles.value_or(data.tiles.min);
  data.tiles.max = settings.max_tiles.value_or(data.tiles.max);
  data.tiles.thumbnail = settings.thumbnail.value_or(data.tiles.thumbnail);
}

// Applies its chat template where the settings leave that open.
void ApplyTemplate(const ModelConfig& model, const std::string& folder, DataConfig& data) {
  if (data.chat_template != kAutoTemplate) return;
  const ChosenTemplate chosen = ChooseTemplate(model, folder);
  data.chat_template = chosen.name;
  if (data.system.empty()) data.system = chosen.system;
  if (!chosen.warning.empty()) spdlog::warn("{}", chosen.warning);
}

}  // namespace

ModelConfig ReadAskedModel(const ModelSource& source, const std::string& adapters) {
  ModelConfig model = ReadModelConfig(source.folder);
  if (!adapters.empty() && model.has_vision) TakePreprocessors(adapters, &model);
  return model;
}

RunConfig ReadSettings(const ModelSource& source, const ModelConfig& model,
                       const std::string& adapters, const std::vector<std::string>& set) {
  const std::vector<Override> overrides = ParseOverrides(set);
  RunConfig config;
  if (source.run_config.empty()) {
    const bool pictures = !adapters.empty() && ReadPreprocessor(adapters).is_object();
    ApplySettings(model, pictures ? adapters : source.folder, config.data);
    ReadConfigText("--set", "{}", overrides, config);
    const bool jinja = !adapters.empty() && !FolderJinja(adapters).empty();
    ApplyTemplate(model, jinja ? adapters : source.folder, config.data);
    return config;
  }
  ReadConfig(source.run_config, overrides, config);
  ApplyTemplate(model, source.folder, config.data);
  RunConfig here;
  ReadConfigText("--set", "{}", overrides, here);
  config.parallel = here.parallel;
  config.balance = here.balance;
  config.cluster = here.cluster;
  config.train.threads = here.train.threads;
  return config;
}

}  // namespace equipoise
