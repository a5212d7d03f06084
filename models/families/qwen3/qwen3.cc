#include "models/families/qwen3/qwen3.h"

#include "models/families/decoder_keys.h"

namespace equipoise {
namespace {

void Parse(const ConfigSection& section, TextConfig* text) {
  ParsePositions(section, 32768, text);
  ParseLayerWindow(section, text);
  ParseHeadDim(section, 128, text);
  ParseAttentionBias(section, "attention_bias", false, text);
  text->use_qk_norm = true;
}

void Write(const TextConfig& text, Json* json) {
  (*json)["head_dim"] = text.head_dim;
  (*json)["attention_bias"] = text.attention_bias;
}

}  // namespace

const DecoderFamily& Qwen3() {
  static const DecoderFamily kFamily = {"qwen3",
                                        "Qwen3ForCausalLM",
                                        Parse,
                                        Write,
                                        /*renamings=*/nullptr,
                                        WeightNaming::kTransformers,
                                        {},
                                        /*takes_layer_windows=*/true};
  return kFamily;
}

}  // namespace equipoise
