#pragma once

#include <cstdint>

#include "models/spec/config_section.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Readers of keys whose defaults differ between families. Each throws DataError that names the key.

// Reads `head_dim`; where it is absent, `fallback`, or with a fallback of 0 hidden_size over the
// number of heads, which must divide it. REQUIRES: those two are already in `text`.
void ParseHeadDim(const ConfigSection& section, int64_t fallback, TextConfig* text);
void ParsePositions(const ConfigSection& section, int64_t fallback, TextConfig* text);
// Reads `sliding_window`; `fallback` where it is absent, and 0 is none, as is null. Attention in a
// window is not computed: one that a position can be outside of is refused. REQUIRES: positions are
// already in `text`.
void ParseWindow(const ConfigSection& section, int64_t fallback, const TextConfig& text);
// Reads one flag for the biases of q, k, v and o.
void ParseAttentionBias(const ConfigSection& section, const char* key, bool fallback,
                        TextConfig* text);

}  // namespace equipoise
