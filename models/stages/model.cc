#include "models/stages/model.h"

#include <algorithm>
#include <utility>

#include "models/layers/head.h"
#include "models/layers/projector.h"
#include "models/layers/text_layers.h"
#include "models/layers/vision_layers.h"

namespace equipoise {
namespace {

using Layers = std::vector<std::unique_ptr<Layer>>;

const char kVisionPrefix[] = "vision_tower.";
const char kProjectorPrefix[] = "multi_modal_projector.";

bool BeginsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Counts the layers of the whole model and makes those in the range.
class LayerList {
 public:
  explicit LayerList(LayerRange range) : range_(range) {}

  // The layer made, or null when it is outside the range.
  template <class Kind, class... Arguments>
  Kind* Add(Arguments&&... arguments) {
    if (!range_.Holds(count_++)) return nullptr;
    auto layer = std::make_unique<Kind>(std::forward<Arguments>(arguments)...);
    Kind* made = layer.get();
    layers_.push_back(std::move(layer));
    return made;
  }
  Layers Take() { return std::move(layers_); }

 private:
  const LayerRange range_;
  int count_ = 0;
  Layers layers_;
};

void AddVision(const ModelConfig& config, const TensorParallel& tensor, LayerList& layers) {
  layers.Add<PatchEmbeddingLayer>("vision_tower.embeddings", config.vision, tensor);
  for (int64_t i = 0; i < config.vision.num_hidden_layers; ++i) {
    layers.Add<VisionLayer>("vision_tower.encoder.layer." + std::to_string(i), config.vision,
                            tensor);
  }
  layers.Add<ProjectorLayer>("multi_modal_projector", config, tensor);
}

// `prefix` is "" for a language model alone.
void AddText(const std::string& prefix, const TextConfig& config, const TensorParallel& tensor,
             LayerList& layers) {
  const std::string model = prefix + "model.";
  auto* embedding = layers.Add<EmbeddingLayer>(model + "embed_tokens", config, tensor);
  const auto rotary = std::make_shared<RotaryTable>(config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers.Add<DecoderLayer>(model + "layers." + std::to_string(i), static_cast<size_t>(i), config,
                             rotary, tensor);
  }
  HeadLayer::Names names = {model + "norm.weight", prefix + "lm_head", prefix + "lm_head.weight"};
  Parameter* tied = nullptr;
  if (config.tie_word_embeddings) {
    names.weight = model + "embed_tokens.weight";
    if (embedding != nullptr) tied = &embedding->weight();
  }
  auto* head = layers.Add<HeadLayer>(names, config, tied, tensor);
  if (head != nullptr && config.tie_word_embeddings && tied == nullptr) head->HoldCopy();
}

}  // namespace

Layers BuildLayers(const ModelConfig& config, LayerRange range, const TensorParallel& tensor) {
  LayerList layers(range);
  if (config.has_vision) AddVision(config, tensor, layers);
  AddText(config.has_vision ? "language_model." : "", config.text, tensor, layers);
  return layers.Take();
}

std::string ModuleOf(const Parameter& parameter) {
  if (BeginsWith(parameter.name, kVisionPrefix)) return "vision";
  if (BeginsWith(parameter.name, kProjectorPrefix)) return "projector";
  return "llm";
}

void Freeze(Layers& layers, const std::vector<std::string>& modules) {
  for (const std::unique_ptr<Layer>& layer : layers) {
    for (Parameter* parameter : layer->parameters()) {
      if (Contains(modules, ModuleOf(*parameter))) parameter->trainable = false;
    }
  }
}

}  // namespace equipoise
