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

void ParseAttentionBias(const ConfigSection& section, const char* key, bool fallback,
                        TextConfig* text) {
  text->attention_bias = text->attention_output_bias = section.Flag(key, fallback);
}

}  // namespace equipoise
