#pragma once

#include <cstdint>

#include "models/spec/config_section.h"
#include "models/spec/model_config.h"

namespace equipoise {

// Readers of keys whose defaults differ between families. Each throws DataError that names the key.

// Reads `head_dim`; where it is absent, `fallback`, or with a fallback of 0 hidden_size over the
// number of heads, which must divide it. REQUIRES: those two are already in `text`.
void ParseHeadDim(const ConfigSection& section, int64_t fallback, TextConfig* text);
// Reads `max_position_embeddings`; `fallback` where it is absent.
void ParsePositions(const ConfigSection& section, int64_t fallback, TextConfig* text);
// Reads `sliding_window`; `fallback` where it is absent, and 0 is none, as is null. One that no
// position is outside of is none either. REQUIRES: positions are already in `text`.
void ParseWindow(const ConfigSection& section, int64_t fallback, TextConfig* text);
// The same of families where `use_sliding_window` is a switch and `layer_types`, or
// `max_window_layers`, tells which layers have the window.
void ParseLayerWindow(const ConfigSection& section, TextConfig* text);
inline constexpr char kSlidingAttention[] = "sliding_attention";  // in layer_types
// Reads one flag for the biases of q, k, v and o.
void ParseAttentionBias(const ConfigSection& section, const char* key, bool fallback,
                        TextConfig* text);

}  // namespace equipoise
