#include "models/families/qwen2/qwen2.h"

#include "models/families/decoder_keys.h"

namespace equipoise {
namespace {

void Parse(const ConfigSection& section, TextConfig* text) {
  ParsePositions(section, 32768, text);
  ParseLayerWindow(section, text);
  ParseHeadDim(section, 0, text);
  text->attention_bias = true;
}

void Write(const TextConfig& text, Json* json) {
  if (text.head_dim * text.num_attention_heads != text.hidden_size) {
    (*json)["head_dim"] = text.head_dim;
  }
}

}  // namespace

const DecoderFamily& Qwen2() {
  static const DecoderFamily kFamily = {"qwen2",
                                        "Qwen2ForCausalLM",
                                        Parse,
                                        Write,
                                        /*renamings=*/nullptr,
                                        WeightNaming::kTransformers,
                                        {},
                                        /*takes_layer_windows=*/true};
  return kFamily;
}

}  // namespace equipoise
