// Prints a JSON object a line for every preset: name, config.json, parameters by layer specs.

#include <cstdint>
#include <cstdio>

#include "models/families/families.h"
#include "models/families/presets.h"
#include "models/spec/layer_spec.h"

// NOLINTNEXTLINE(bugprone-exception-escape): a test's program ends with its message
int main() {
  for (const std::string& name : equipoise::PresetNames()) {
    const equipoise::ModelConfig config = equipoise::PresetConfig(name);
    int64_t parameters = 0;
    for (const equipoise::LayerSpec& layer : equipoise::LayerSpecs(config)) {
      parameters += layer.parameter_count();
    }
    const equipoise::Json line = {
        {"name", name}, {"config", equipoise::ToHuggingFace(config)}, {"parameters", parameters}};
    std::printf("%s\n", line.dump().c_str());
  }
  return 0;
}
