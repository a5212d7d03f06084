#include "models/families/mistral/mistral.h"

#include <fmt/format.h>

#include "models/families/decoder_keys.h"

namespace equipoise {
namespace {

// Mistral-7B-v0.1 has one of 4,096, as has a config.json that says nothing of it; later ones null.
constexpr char kWindow[] = "sliding_window";
constexpr int64_t kDefaultWindow = 4096;

void Parse(const ConfigSection& section, TextConfig* text) {
  ParsePositions(section, 32 * kDefaultWindow, text);
  ParseHeadDim(section, 0, text);
  if (!section.Has("num_key_value_heads")) text->num_key_value_heads = 8;
  if (section.json.contains(kWindow) && !section.Has(kWindow)) return;
  const int64_t window = section.Size(kWindow, kMaxPositions, kDefaultWindow);
  if (window >= text->max_position_embeddings) return;
  section.Refuse(kWindow, fmt::format("{} is less than max_position_embeddings = {}, and attention "
                                      "in a sliding window is not supported; set "
                                      "max_position_embeddings to {} in config.json and "
                                      "data.max_tokens to at most that",
                                      window, text->max_position_embeddings, window));
}

void Write(const TextConfig& text, Json* json) {
  (*json)["head_dim"] = text.head_dim;
  if (!json->contains(kWindow)) (*json)[kWindow] = nullptr;
}

}  // namespace

const DecoderFamily& Mistral() {
  static const DecoderFamily kFamily = {"mistral", "MistralForCausalLM", Parse, Write};
  return kFamily;
}

}  // namespace equipoise
