#include "models/model.h"

#include <utility>

#include "configs/error.h"
#include "models/head.h"
#include "models/projector.h"
#include "models/text_layers.h"
#include "models/vision_layers.h"

namespace equipoise {
namespace {

using Layers = std::vector<std::unique_ptr<Layer>>;

const char kVisionPrefix[] = "vision_tower.";
const char kProjectorPrefix[] = "multi_modal_projector.";

bool BeginsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

void AddVision(const ModelConfig& config, Layers& layers) {
  layers.push_back(std::make_unique<PatchEmbeddingLayer>("vision_tower.embeddings", config.vision));
  for (int64_t i = 0; i < config.vision.num_hidden_layers; ++i) {
    layers.push_back(std::make_unique<VisionLayer>(
        "vision_tower.encoder.layer." + std::to_string(i), config.vision));
  }
  layers.push_back(std::make_unique<ProjectorLayer>("multi_modal_projector", config));
}

// `prefix` is "" for a language model alone.
void AddText(const std::string& prefix, const TextConfig& config, Layers& layers) {
  const std::string model = prefix + "model.";
  auto embedding = std::make_unique<EmbeddingLayer>(model + "embed_tokens", config);
  Parameter* tied = config.tie_word_embeddings ? &embedding->weight() : nullptr;
  layers.push_back(std::move(embedding));
  const auto rotary = std::make_shared<RotaryTable>(config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers.push_back(std::make_unique<DecoderLayer>(model + "layers." + std::to_string(i),
                                                    static_cast<size_t>(i), config, rotary));
  }
  const HeadLayer::Names names = {model + "norm.weight", prefix + "lm_head"};
  layers.push_back(std::make_unique<HeadLayer>(names, config, tied));
}

}  // namespace

Layers BuildLayers(const ModelConfig& config) {
  Layers layers;
  if (config.has_vision) AddVision(config, layers);
  AddText(config.has_vision ? "language_model." : "", config.text, layers);
  return layers;
}

std::string ModuleOf(const Parameter& parameter) {
  if (BeginsWith(parameter.name, kVisionPrefix)) return "vision";
  if (BeginsWith(parameter.name, kProjectorPrefix)) return "projector";
  return "llm";
}

void Freeze(Layers& layers, const std::vector<std::string>& modules) {
  for (const std::string& module : modules) {
    bool found = false;
    for (const std::unique_ptr<Layer>& layer : layers) {
      for (Parameter* parameter : layer->parameters()) {
        if (ModuleOf(*parameter) != module) continue;
        parameter->trainable = false;
        found = true;
      }
    }
    if (!found) {
      throw ConfigError("model.freeze: this model has no '" + module +
                        "'; use vision, projector or llm");
    }
  }
}

void SetRecompute(Layers& layers, const std::vector<std::string>& modules) {
  for (const std::string& module : modules) {
    bool found = false;
    for (const std::unique_ptr<Layer>& layer : layers) {
      const std::vector<Parameter*> parameters = layer->parameters();
      if (parameters.empty() || ModuleOf(*parameters.front()) != module) continue;
      layer->recompute = found = true;
    }
    if (!found) {
      throw ConfigError("train.recompute: this model has no '" + module +
                        "'; use vision, projector or llm");
    }
  }
}

}  // namespace equipoise
