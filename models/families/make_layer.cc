#include "models/families/make_layer.h"

#include <map>
#include <string>

#include "configs/base/error.h"
#include "models/families/internvl/encoder_layers.h"
#include "models/families/llava/encoder_layers.h"
#include "models/layers/head.h"

namespace equipoise {
namespace {

using MakeEncoderLayer = std::unique_ptr<Layer> (*)(const LayerSpec&, const ModelConfig&,
                                                    const TensorParallel&);

// Makers of an encoder's layers, by ModelConfig::model_type.
const std::map<std::string, MakeEncoderLayer>& Encoders() {
  static const std::map<std::string, MakeEncoderLayer> kEncoders = {
      {"internvl", MakeInternVlEncoderLayer},
      {"llava", MakeLlavaEncoderLayer},
  };
  return kEncoders;
}

}  // namespace

std::unique_ptr<Layer> LayerMaker::Make(const LayerSpec& spec) {
  if (spec.component != Component::kLanguageModel) {
    return Encoders().at(config_.model_type)(spec, config_, tensor_);
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
