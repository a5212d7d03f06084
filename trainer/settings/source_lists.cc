#include "trainer/settings/source_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/nearest.h"
#include "configs/base/regular_file.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/yaml_reader.h"

namespace equipoise {
namespace {

constexpr int64_t kMostFiles = 65535;  // sources that a cost index can tell apart
constexpr size_t kMostMetaBytes = 16 << 20;

std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

// The files that `{first..last}` in a path stands for; the path alone where it has none.
std::vector<std::string> FilesOf(const std::string& path) {
  const size_t open = path.find('{'), dots = path.find("..", open), close = path.find('}', open);
  const bool range = open != std::string::npos && dots < close && close != std::string::npos;
  if (!range || std::filesystem::exists(path)) return {path};
  const std::string first = path.substr(open + 1, dots - open - 1);
  const auto begin = NumberOf(first), end = NumberOf(path.substr(dots + 2, close - dots - 2));
  if (!begin || !end || *end < *begin || *end - *begin >= kMostFiles) {
    throw ConfigError(fmt::format(
        "{}: is no range of files; write it as in shard-{{000..127}}.tar, at most {} files",
        ShownText(path), kMostFiles));
  }
  std::vector<std::string> files;
  for (int64_t number = *begin; number <= *end; ++number) {
    const std::string digits = fmt::format("{:0{}}", number, first.size());
    files.push_back(path.substr(0, open) + digits + path.substr(close + 1));
  }
  return files;
}

// True where all values are objects, of which one has one of the keys.
bool Lists(const Json& object, std::initializer_list<const char*> keys) {
  const bool all =
      std::all_of(object.begin(), object.end(), [](const Json& set) { return set.is_object(); });
  return all && std::any_of(object.begin(), object.end(), [&](const Json& set) {
           return std::any_of(keys.begin(), keys.end(),
                              [&](const char* key) { return set.contains(key); });
         });
}

// The meta file at `path`; nothing where it is another file.
std::optional<Json> ReadMeta(const std::string& path) {
  if (!path.ends_with(".json")) return std::nullopt;
  const FileText file = ReadRegularFile(path, kMostMetaBytes);
  const size_t first = file.text.find_first_not_of(" \t\r\n");
  if (!file.problem.empty() || first == std::string::npos || file.text[first] != '{')
    return std::nullopt;
  // A whole object in the first line and more behind it: records, one a line.
  const size_t end = file.text.find('\n', first),
               next = file.text.find_first_not_of(" \t\r\n", end);
  if (next != std::string::npos && Json::accept(file.text.substr(first, end - first)))
    return std::nullopt;
  Json meta = ParseJson(file.text, path);
  if (Lists(meta, {"file_name", "hf_hub_url", "ms_hub_url", "script_url"})) {
    throw DataError(path +
                    ": is LLaMA-Factory's list of data sets; give the files that it names "
                    "(file_name), each as a source");
  }
  // Of several keys: one that is misspelt must not make the file a record.
  if (!Lists(meta, {"annotation", "annotations", "root", "repeat_time"})) return std::nullopt;
  return std::optional(std::move(meta));
}

// Refuses what a data set asks for and would not get.
void CheckDataSet(const Json& set, const std::string& where) {
  constexpr std::array<std::string_view, 7> kKnown = {
      "root", "annotation", "repeat_time", "weight", "length", "data_augment", "max_dynamic_patch"};
  for (const auto& [key, value] : set.items()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) continue;
    const std::string near = key == "repeat"   ? "repeat_time"
                             : key == "images" ? "root"
                                               : NearestName(key, {kKnown.begin(), kKnown.end()});
    throw DataError(
        fmt::format("{}: '{}' is not known here; {}", where, ShownText(key),
                    near.empty() ? "take it out" : fmt::format("did you mean '{}'?", near)));
  }
  if (GetBool(set, "data_augment", where, false)) {
    throw DataError(where + ": data_augment is not supported; set it to false");
  }
  const int64_t most = GetInt(set, "max_dynamic_patch", where, 1);
  if (most < 1 || most > 64)
    throw DataError(fmt::format("{}: max_dynamic_patch is {}; it is from 1 to 64", where, most));
}

SourceConfig SourceOf(const Json& set, double repeat, const std::string& where) {
  SourceConfig source;
  source.listed_in = where;
  source.annotations = GetString(set, "annotation", where);
  const std::string root = GetString(set, "root", where, "");
  if (!root.empty()) source.images = root;
  source.max_tiles = GetInt(set, "max_dynamic_patch", where, 0);
  source.repeat =
      repeat * GetNumber(set, "repeat_time", where, 1) * GetNumber(set, "weight", where, 1);
  if (!(source.repeat >= 0 && source.repeat <= 1000)) {
    throw DataError(fmt::format("{}: it would be used {:g} times in an epoch; 0 to 1000 can be",
                                where, source.repeat));
  }
  return source;
}

// Throws where an item of the list at `key` names no file.
void RequireFiles(const std::vector<SourceConfig>& sources, const char* key) {
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].annotations.empty()) continue;
    throw ConfigError(fmt::format("{}.{}.annotations: is missing; give a file of records", key, i));
  }
}

// Held-out records are used once each, whatever times a meta file of training data gives.
void UseOnce(std::vector<SourceConfig>& sources, const char* key, const char* samples) {
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].repeat == 1) continue;
    throw ConfigError(
        fmt::format("{}.{}.repeat: only sources to train on are repeated; leave it out, and set {} "
                    "to use fewer",
                    key, i, samples));
  }
  ExpandSources(sources);
  for (SourceConfig& source : sources) source.repeat = 1;
}

}  // namespace

void ExpandSources(std::vector<SourceConfig>& sources) {
  std::vector<SourceConfig> expanded;
  for (const SourceConfig& source : sources) {
    const std::optional<Json> meta = ReadMeta(source.annotations);
    std::vector<SourceConfig> sets;
    if (meta) {
      for (const auto& [name, set] : meta->items()) {
        const std::string where = source.annotations + ": " + ShownText(name);
        CheckDataSet(set, where);
        sets.push_back(SourceOf(set, source.repeat, where));
      }
    } else {
      sets.push_back(source);
    }
    for (SourceConfig& set : sets) {
      const std::vector<std::string> files = FilesOf(set.annotations);
      if (files.size() > 1) set.range = set.annotations;
      set.files = std::ssize(files);
      for (const std::string& file : files) {
        set.annotations = file;
        expanded.push_back(set);
        set.files = 0;
      }
    }
  }
  sources = std::move(expanded);
}

std::vector<SourceConfig> WithRanges(const std::vector<SourceConfig>& sources) {
  std::vector<SourceConfig> given;
  for (const SourceConfig& source : sources) {
    if (source.files == 0) continue;
    given.push_back(source);
    if (!source.range.empty()) given.back().annotations = source.range;
  }
  return given;
}

RunConfig ReadRunConfig(const std::string& path, const std::vector<Override>& overrides) {
  RunConfig config;
  ReadConfig(path, overrides, config);
  RequireFiles(config.data.train, "data.train");
  RequireFiles(config.data.eval, "data.eval");
  RequireFiles(config.eval.answers, "eval.answers");
  ExpandSources(config.data.train);
  UseOnce(config.data.eval, "data.eval", "eval.samples");
  UseOnce(config.eval.answers, "eval.answers", "eval.answer_samples");
  return config;
}

}  // namespace equipoise
