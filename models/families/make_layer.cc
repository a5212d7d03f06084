#include "models/families/make_layer.h"

#include <map>
#include <string>

#include "configs/base/error.h"
#include "models/families/internvl/encoder_layers.h"
#include "models/families/llava/encoder_layers.h"
#include "models/families/qwen2_vl/encoder_layers.h"
#include "models/layers/head.h"

namespace equipoise {
namespace {

using EncoderMaker = std::function<std::unique_ptr<Layer>(const LayerSpec&, const TensorParallel&)>;

// A maker of layers that share nothing, for one model.
template <std::unique_ptr<Layer> (*kMake)(const LayerSpec&, const ModelConfig&,
                                          const TensorParallel&)>
EncoderMaker MakerOf(const ModelConfig& config) {
  return [config](const LayerSpec& spec, const TensorParallel& tensor) {
    return kMake(spec, config, tensor);
  };
}

// The maker of an encoder's layers, by ModelConfig::model_type.
EncoderMaker MakerFor(const ModelConfig& config) {
  static const std::map<std::string, EncoderMaker (*)(const ModelConfig&)> kMakers = {
      {"internvl", MakerOf<MakeInternVlEncoderLayer>},
      {"llava", MakerOf<MakeLlavaEncoderLayer>},
      {"llava_next", MakerOf<MakeLlavaEncoderLayer>},
      {"llava_onevision", MakerOf<MakeLlavaEncoderLayer>},
      {"qwen2_vl", Qwen2VlLayerMaker},
      {"qwen2_5_vl", Qwen2VlLayerMaker},
      {"qwen3_vl", Qwen2VlLayerMaker},
  };
  return config.has_vision ? kMakers.at(config.model_type)(config) : nullptr;
}

}  // namespace

LayerMaker::LayerMaker(const ModelConfig& config, const TensorParallel& tensor)
    : config_(config),
      tensor_(tensor),
      rotary_(std::make_shared<RotaryTable>(config.text)),
      encoder_(MakerFor(config)) {}

std::unique_ptr<Layer> LayerMaker::Make(const LayerSpec& spec) {
  if (spec.component != Component::kLanguageModel) {
    TensorParallel whole_rows = tensor_;
    whole_rows.sequence = false;
    whole_rows.context = {};  // it has pictures of its own
    return encoder_(spec, whole_rows);
  }
  if (spec.kind == kDecoderBlock) {
    return std::make_unique<DecoderLayer>(spec, config_.text, rotary_, tensor_);
  }
  if (spec.kind == kHead) {
    return std::make_unique<HeadLayer>(spec, config_.text,
                                       spec.tied.name.empty() ? nullptr : embedding_, tensor_);
  }
  EQUIPOISE_CHECK(spec.kind == kTokenEmbedding, spec.kind);
  auto embedding = std::make_unique<EmbeddingLayer>(spec, config_.text, tensor_);
  embedding_ = &embedding->weight();
  return embedding;
}

}  // namespace equipoise
