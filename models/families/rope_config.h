#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "models/spec/config_section.h"
#include "models/spec/model_config.h"

namespace equipoise {

// What a family's config.json may say of rotary positions.
struct RopeRules {
  std::vector<std::string> types = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
  std::vector<std::string> names_of_longrope = {};  // older ones
  // original_max_position_embeddings stands beside the other sizes, and is this where it is absent.
  // 0: it stands among the numbers of the scaling, and is max_position_embeddings where absent.
  int64_t original_positions = 0;
  bool takes_part = false;  // of each head, partial_rotary_factor
};

// Reads rotary positions as Transformers does: of version 4 from `rope_theta` and `rope_scaling`,
// of version 5 from `rope_parameters`. Throws DataError that names the key. REQUIRES: the head's
// size and max_position_embeddings are already in `text`.
void ParseRope(const ConfigSection& section, const RopeRules& rules, TextConfig* text);

// Writes both forms. `json` is the source of `text`, whose own numbers of the scaling stay, or has
// none of them.
void WriteRope(const TextConfig& text, Json* json);

}  // namespace equipoise
