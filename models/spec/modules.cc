#include "models/spec/modules.h"

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {

std::string ModuleOf(LayerKind kind) {
  switch (kind) {
    case LayerKind::kPatchEmbedding:
    case LayerKind::kVisionBlock:
      return "vision";
    case LayerKind::kProjector:
      return "projector";
    default:
      return "llm";
  }
}

int NumEncoderLayers(const ModelConfig& config) {
  const std::vector<LayerSpec> specs = LayerSpecs(config);
  return static_cast<int>(std::count_if(specs.begin(), specs.end(), [](const LayerSpec& spec) {
    return ModuleOf(spec.kind) != "llm";
  }));
}

void CheckModules(const ModelConfig& config, const std::vector<std::string>& modules,
                  const std::string& key) {
  const auto unknown = std::find_if(modules.begin(), modules.end(), [&](const std::string& module) {
    return module != "llm" && !(config.has_vision && (module == "vision" || module == "projector"));
  });
  if (unknown == modules.end()) return;
  throw ConfigError(key + ": this model has no '" + *unknown + "'; use " +
                    (config.has_vision ? "vision, projector or llm" : "llm"));
}

}  // namespace equipoise
