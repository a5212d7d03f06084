#include "models/families/llama/llama.h"

#include "models/families/decoder_keys.h"

namespace equipoise {
namespace {

void Parse(const ConfigSection& section, TextConfig* text) {
  ParsePositions(section, 2048, text);
  ParseHeadDim(section, 0, text);
  ParseAttentionBias(section, "attention_bias", false, text);
  text->mlp_bias = section.Flag("mlp_bias", false);
}

void Write(const TextConfig& text, Json* json) {
  (*json)["head_dim"] = text.head_dim;
  (*json)["attention_bias"] = text.attention_bias;
  (*json)["mlp_bias"] = text.mlp_bias;
}

}  // namespace

const DecoderFamily& Llama() {
  static const DecoderFamily kFamily = {"llama", "LlamaForCausalLM", Parse, Write};
  return kFamily;
}

}  // namespace equipoise
