#include "trainer/answers/generation_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "trainer/common/durable_file.h"

namespace equipoise {
namespace {

constexpr char kEnds[] = "eos_token_id";

// The ids under eos_token_id: none, one or a list.
std::vector<int32_t> ReadEnds(const Json& json, const std::string& source) {
  if (!json.is_object() || !json.contains(kEnds) || json[kEnds].is_null()) return {};
  const Json& value = json[kEnds];
  std::vector<int32_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_integer()) {
      throw DataError(fmt::format("{}: {}: {} is no id; write one, or a list of them", source,
                                  kEnds, id.dump()));
    }
    const auto number = id.get<int64_t>();
    if (number >= 0 && number < INT32_MAX) ids.push_back(static_cast<int32_t>(number));
  }
  return ids;
}

}  // namespace

GenerationSettings ReadGenerationSettings(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  GenerationSettings settings;
  if (!std::filesystem::exists(path)) return settings;
  const Json json = ReadJsonFile(path);
  if (!json.is_object()) throw DataError(path + ": not a JSON object; download it again");
  settings.source = path;
  settings.ends = ReadEnds(json, path);
  settings.repetition_penalty = GetNumber(json, "repetition_penalty", path, 1);
  if (!(std::isfinite(settings.repetition_penalty) && settings.repetition_penalty > 0)) {
    throw DataError(fmt::format("{}: repetition_penalty: {} is not above 0; write 1 for none", path,
                                settings.repetition_penalty));
  }
  return settings;
}

std::vector<int32_t> EndTokens(int32_t end_of_turn, const ModelConfig& config,
                               const GenerationSettings& settings) {
  std::vector<int32_t> ends;
  const auto add = [&](int64_t id) {
    const auto token = static_cast<int32_t>(id);
    const bool known = std::find(ends.begin(), ends.end(), token) != ends.end();
    if (id >= 0 && id < config.text.vocab_size && !known) ends.push_back(token);
  };
  add(end_of_turn);
  add(config.text.eos_token_id);
  const Json& source = config.source;
  for (const int32_t id : ReadEnds(source, "config.json")) add(id);
  for (const char* section : {"text_config", "llm_config"}) {
    if (!source.is_object() || !source.contains(section)) continue;
    for (const int32_t id : ReadEnds(source[section], "config.json: " + std::string(section)))
      add(id);
  }
  for (const int32_t id : settings.ends) add(id);
  return ends;
}

void WriteEndToken(int32_t end_of_turn, const ModelConfig& config, const std::string& folder) {
  const GenerationSettings own = ReadGenerationSettings(folder);
  // Where there is such a file, Transformers does not look into config.json.
  const std::vector<int32_t> known = own.source.empty() ? EndTokens(-1, config, own) : own.ends;
  if (end_of_turn < 0 || std::find(known.begin(), known.end(), end_of_turn) != known.end()) return;
  Json json = own.source.empty() ? Json::object() : ReadJsonFile(own.source);
  json.erase("_from_model_config");
  json[kEnds] = EndTokens(end_of_turn, config, own);
  WriteFileDurably(folder + "/generation_config.json", json.dump(2) + "\n");
}

}  // namespace equipoise
