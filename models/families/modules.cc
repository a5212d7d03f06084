#include "models/families/modules.h"

#include <algorithm>

#include "configs/base/error.h"
#include "models/families/families.h"

namespace equipoise {

int NumEncoderLayers(const ModelConfig& config) {
  const std::vector<LayerSpec> specs = LayerSpecs(config);
  return static_cast<int>(std::count_if(specs.begin(), specs.end(), [](const LayerSpec& spec) {
    return spec.component != Component::kLanguageModel;
  }));
}

void CheckModules(const ModelConfig& config, const std::vector<std::string>& modules,
                  const std::string& key) {
  std::vector<std::string> known;  // in the order of the layers
  for (const LayerSpec& spec : LayerSpecs(config)) {
    const std::string name = ComponentName(spec.component);
    if (known.empty() || known.back() != name) known.push_back(name);
  }
  for (const std::string& module : modules) {
    if (std::find(known.begin(), known.end(), module) != known.end()) continue;
    std::string listed;
    for (size_t i = 0; i < known.size(); ++i) {
      listed += (i == 0 ? "" : i + 1 < known.size() ? ", " : " or ") + known[i];
    }
    throw ConfigError(key + ": this model has no '" + module + "'; use " + listed);
  }
}

}  // namespace equipoise
