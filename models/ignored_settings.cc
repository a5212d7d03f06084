// Settings of config.json that training does not apply, or that stand for nothing.

#include <fmt/format.h>

#include <utility>

#include "models/model_config.h"

namespace equipoise {

std::vector<std::string> IgnoredSettings(const ModelConfig& config) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& key, const Json& value, const char* instead) {
    lines.push_back(fmt::format("{}: {} is not applied, {}; set it to 0 to silence this", key,
                                value.dump(), instead));
  };
  if (config.has_vision && config.vision.drop_path_rate != 0) {
    add("vision_config.drop_path_rate", config.vision.drop_path_rate,
        "every sample goes through every layer");
  }
  for (const char* part : {"", "vision_config", "text_config", "llm_config"}) {
    const bool top = *part == 0;
    if (!config.source.is_object() || (!top && !config.source.contains(part))) continue;
    const Json& section = top ? config.source : config.source[part];
    for (const auto& [key, value] : section.items()) {
      if (key.find("dropout") == std::string::npos && key.find("pdrop") == std::string::npos)
        continue;
      if (value.is_number() && value > 0)
        add(top ? key : part + ("." + key), value, "nothing is dropped out");
    }
  }
  const TextConfig& text = config.text;
  for (const auto& [key, id] : {std::pair<const char*, int64_t>{"bos_token_id", text.bos_token_id},
                                {"eos_token_id", text.eos_token_id}}) {
    if (id >= -1 && id < text.vocab_size) continue;
    lines.push_back(fmt::format("{}: {} is outside the vocabulary of {} and stands for no token",
                                key, id, text.vocab_size));
  }
  return lines;
}

}  // namespace equipoise
