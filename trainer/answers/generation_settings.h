#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/model_config.h"

namespace equipoise {

// What a folder's generation_config.json says; Transformers' generate goes by it.
struct GenerationSettings {
  std::vector<int32_t> ends;      // eos_token_id: one id or a list
  double repetition_penalty = 1;  // 1: none
  std::string source;             // the file, for messages; empty: the folder has none
};

// Throws DataError for a file that is damaged.
GenerationSettings ReadGenerationSettings(const std::string& folder);

// The tokens that end an answer: `end_of_turn` unless it is -1, every eos_token_id of config.json,
// of its language model's section too, and those of `settings`; each once, none outside the
// vocabulary.
std::vector<int32_t> EndTokens(int32_t end_of_turn, const ModelConfig& config,
                               const GenerationSettings& settings);

// Has the folder that describes a model say that `end_of_turn` ends its answers too, for
// Transformers' generate; -1: nothing to say. Throws DataError as ReadGenerationSettings(),
// RunError when the file cannot be written.
void WriteEndToken(int32_t end_of_turn, const ModelConfig& config, const std::string& folder);

}  // namespace equipoise
