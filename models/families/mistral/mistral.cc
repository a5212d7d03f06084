#include "models/families/mistral/mistral.h"

#include "models/families/decoder_keys.h"

namespace equipoise {
namespace {

// Mistral-7B-v0.1 has one of 4,096, as has a config.json that says nothing of it; later ones null.
constexpr int64_t kDefaultWindow = 4096;

void Parse(const ConfigSection& section, TextConfig* text) {
  ParsePositions(section, 32 * kDefaultWindow, text);
  ParseHeadDim(section, 0, text);
  if (!section.Has("num_key_value_heads")) text->num_key_value_heads = 8;
  ParseWindow(section, kDefaultWindow, text);
}

void Write(const TextConfig& text, Json* json) {
  (*json)["head_dim"] = text.head_dim;
  if (json->contains("sliding_window")) return;
  (*json)["sliding_window"] = text.sliding_window > 0 ? Json(text.sliding_window) : Json(nullptr);
}

}  // namespace

const DecoderFamily& Mistral() {
  static const DecoderFamily kFamily = {"mistral", "MistralForCausalLM", Parse, Write};
  return kFamily;
}

}  // namespace equipoise
