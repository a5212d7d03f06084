#include "models/families/decoder_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace equipoise {

void ParseHeadDim(const ConfigSection& section, int64_t fallback, TextConfig* text) {
  const int64_t heads = text->num_attention_heads;
  if (fallback == 0 && !section.Has("head_dim") && text->hidden_size % heads != 0) {
    section.Refuse("hidden_size",
                   fmt::format("{} is no multiple of {} heads", text->hidden_size, heads));
  }
  if (fallback == 0) fallback = std::max<int64_t>(1, text->hidden_size / heads);
  text->head_dim = section.Size("head_dim", kMaxWidth, fallback);
}

void ParsePositions(const ConfigSection& section, int64_t fallback, TextConfig* text) {
  text->max_position_embeddings = section.Size("max_position_embeddings", kMaxPositions, fallback);
}

void ParseWindow(const ConfigSection& section, int64_t fallback, TextConfig* text) {
  constexpr char kWindow[] = "sliding_window";
  if (!section.Has(kWindow) && (fallback == 0 || section.json.contains(kWindow))) return;
  const int64_t window = section.Size(kWindow, kMaxPositions, fallback);
  if (window < text->max_position_embeddings) text->sliding_window = window;
}

void ParseLayerWindow(const ConfigSection& section, TextConfig* text) {
  if (!section.Flag("use_sliding_window", false)) return;
  bool any = GetInt(section.json, "max_window_layers", section.where, 28) < text->num_hidden_layers;
  if (section.Has("layer_types")) {
    const Json& types = section.json["layer_types"];
    any = std::find(types.begin(), types.end(), Json(kSlidingAttention)) != types.end();
  }
  if (any) ParseWindow(section, 4096, text);
}

void ParseAttentionBias(const ConfigSection& section, const char* key, bool fallback,
                        TextConfig* text) {
  text->attention_bias = text->attention_output_bias = section.Flag(key, fallback);
}

}  // namespace equipoise
