#include "models/families/modules.h"

#include <fmt/format.h>

#include <algorithm>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/spec/config_section.h"

namespace equipoise {

int NumEncoderLayers(const std::vector<LayerSpec>& specs) {
  return static_cast<int>(std::count_if(specs.begin(), specs.end(), [](const LayerSpec& spec) {
    return spec.component != Component::kLanguageModel;
  }));
}

int NumEncoderLayers(const ModelConfig& config) { return NumEncoderLayers(LayerSpecs(config)); }

int LayersWithPictures(const ModelConfig& config) {
  return NumEncoderLayers(config) + 1 + static_cast<int>(config.text.deepstack_layers);
}

void CheckModules(const ModelConfig& config, const std::vector<std::string>& modules,
                  const std::string& key) {
  if (modules.empty()) return;
  std::vector<std::string> known;  // in the order of the layers
  for (const LayerSpec& spec : LayerSpecs(config)) {
    const std::string name = ComponentName(spec.component);
    if (known.empty() || known.back() != name) known.push_back(name);
  }
  for (const std::string& module : modules) {
    if (std::find(known.begin(), known.end(), module) != known.end()) continue;
    throw ConfigError(
        fmt::format("{}: this model has no '{}'; use {}", key, module, ChoicesText(known)));
  }
}

}  // namespace equipoise
