#include "data/text/added_token_files.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "data/text/tokenizer_json.h"

namespace equipoise {
namespace {

int32_t CheckedId(int64_t id, const std::string& where) {
  if (0 <= id && id < kMaxTokenId) return static_cast<int32_t>(id);
  throw DataError(fmt::format("{}: the id {} is out of range", where, id));
}

// {"92542": {"content": "<|im_end|>", "special": true, ...}, ...}
void ReadDecoder(const Json& json, const std::string& where, std::map<int32_t, AddedToken>& all) {
  if (!json.is_object()) throw DataError(where + ": not an object");
  for (const auto& [key, entry] : json.items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      throw DataError(fmt::format("{}: '{}' is no id", where, key));
    }
    const std::string here = where + ": " + key;
    if (!entry.is_object()) throw DataError(here + ": not an object");
    AddedToken token;
    token.id = CheckedId(id, where);
    token.content = GetString(entry, "content", here);
    token.special = GetBool(entry, "special", here, false);
    token.single_word = GetBool(entry, "single_word", here, false);
    token.lstrip = GetBool(entry, "lstrip", here, false);
    token.rstrip = GetBool(entry, "rstrip", here, false);
    all[token.id] = token;
  }
}

// {"<|im_end|>": 92542, ...}
void ReadList(const Json& json, const std::string& where, std::map<int32_t, AddedToken>& all) {
  if (!json.is_object()) throw DataError(where + ": not an object");
  for (const auto& [content, value] : json.items()) {
    const int32_t id = CheckedId(GetInt(json, content.c_str(), where), where);
    all.emplace(id, AddedToken{.content = content, .id = id, .special = true});
  }
}

struct Settings {
  std::string path;
  Json json;  // null: there is no such file
};

Settings ReadSettings(const std::string& folder) {
  Settings read;
  read.path = (std::filesystem::path(folder) / "tokenizer_config.json").string();
  if (!std::filesystem::exists(read.path)) return read;
  read.json = ReadJsonFile(read.path);
  if (!read.json.is_object()) throw DataError(read.path + ": not an object");
  return read;
}

}  // namespace

bool PrefixesFirstAlone(const std::string& folder) {
  const auto [path, json] = ReadSettings(folder);
  return json.is_object() &&
         GetString(json, "tokenizer_class", path, "").starts_with("LlamaTokenizer") &&
         !GetBool(json, "legacy", path, true);
}

std::string ReadBeginToken(const std::string& folder, const std::string& fallback) {
  const auto [path, json] = ReadSettings(folder);
  if (json.is_null()) return fallback;
  const std::string name = GetString(json, "tokenizer_class", path, "");
  const bool by_class = name == "InternLM2Tokenizer" || name.starts_with("LlamaTokenizer");
  const bool decided = json.contains("add_bos_token") && !json["add_bos_token"].is_null();
  if (!decided && !by_class) return fallback;
  if (!GetBool(json, "add_bos_token", path, by_class)) return "";
  const Json token = json.contains("bos_token") ? json["bos_token"] : Json();
  if (token.is_object()) return GetString(token, "content", path + ": bos_token");
  return GetString(json, "bos_token", path, by_class ? "<s>" : "");
}

AddedTokenFiles ReadAddedTokens(const std::string& folder) {
  AddedTokenFiles files;
  std::map<int32_t, AddedToken> all;
  const auto read = [&](const char* name) -> std::optional<Json> {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (!std::filesystem::exists(path)) return std::nullopt;
    Json json = ReadJsonFile(path.string());
    files.text += json.dump();
    return json;
  };
  const auto where = [&](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  if (const auto config = read("tokenizer_config.json");
      config && config->is_object() && config->contains("added_tokens_decoder")) {
    ReadDecoder((*config)["added_tokens_decoder"],
                where("tokenizer_config.json") + ": added_tokens_decoder", all);
  } else if (const auto list = read("added_tokens.json")) {
    ReadList(*list, where("added_tokens.json"), all);
  }
  for (auto& [id, token] : all) {
    if (!token.content.empty()) files.tokens.push_back(std::move(token));
  }
  return files;
}

}  // namespace equipoise
