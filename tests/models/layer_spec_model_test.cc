#include <catch2/catch.hpp>

#include "models/families/families.h"
#include "models/families/presets.h"
#include "models/spec/layer_spec.h"
#include "models/stages/model.h"

namespace equipoise {
namespace {

// Small, so that nothing but names and shapes costs time.
std::vector<ModelConfig> Configs() {
  ModelConfig small = PresetConfig("quickstart");
  ModelConfig large = PresetConfig("internvl2-26b");
  ModelConfig llama = PresetConfig("internvl2-8b");
  llama.has_vision = false;
  llama.model_type = "llama";
  llama.text.attention_bias = llama.text.attention_output_bias = llama.text.mlp_bias = true;
  ModelConfig qwen = PresetConfig("internvl3-1b");
  qwen.has_vision = false;
  qwen.model_type = "qwen2";
  ModelConfig qwen3 = PresetConfig("internvl3_5-1b");
  return {small, large, llama, qwen, qwen3};
}

TEST_CASE("layer specs have the names and parameters of the layers", "[models][cpu]") {
  for (const ModelConfig& config : Configs()) {
    const std::vector<LayerSpec> specs = LayerSpecs(config);
    const auto layers = BuildLayers(config);
    REQUIRE(specs.size() == layers.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      INFO(config.model_type << " " << specs[i].name);
      CHECK(specs[i].name == layers[i]->name());
      int64_t parameters = 0;
      for (const Parameter* parameter : layers[i]->parameters()) parameters += parameter->numel();
      CHECK(specs[i].parameter_count() == parameters);
    }
  }
}

}  // namespace
}  // namespace equipoise
