#include "trainer/settings/source_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/nearest.h"
#include "configs/base/regular_file.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/yaml_reader.h"
#include "trainer/settings/dataset_info.h"
#include "trainer/settings/hub_cache.h"
#include "trainer/settings/llava_list.h"
#include "trainer/settings/own_template.h"

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

// The files of records in a folder, by name.
std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string ending = entry.path().extension();
    const bool records =
        ending == ".json" || ending == ".jsonl" || ending == ".parquet" || ending == ".tar";
    if (records && entry.is_regular_file(error)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Throws ConfigError where a folder has files of several splits: `train-00000-of-...`, as on the
// Hub, `train.jsonl`, `train_0.json`.
void RequireOneSplit(const std::string& folder, const std::vector<std::string>& files) {
  std::set<std::string> splits;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename();
    const std::string word = name.substr(0, name.find_first_of("-_."));
    for (const char* split : {"train", "test", "validation", "valid", "val", "dev", "eval"}) {
      if (word == split) splits.insert(word);
    }
  }
  if (splits.size() < 2) return;
  throw ConfigError(fmt::format(
      "{}: holds files of several splits ({}); give those of one, a file or a range such "
      "as train-{{00000..00003}}-of-00004.parquet",
      ShownText(folder), fmt::join(splits, ", ")));
}

// The files that a folder or `{first..last}` in a path stands for; the path alone where it has
// none.
std::vector<std::string> FilesOf(const std::string& path) {
  if (std::vector<std::string> files = FilesIn(path); !files.empty()) {
    RequireOneSplit(path, files);
    return files;
  }
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

// The list of data sets at `path`; nothing where it is another file.
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
  // Of several keys: one that is misspelt must not make the file a record.
  const bool lists =
      IsDatasetInfo(meta) || Lists(meta, {"annotation", "annotations", "root", "repeat_time"});
  return lists ? std::optional(std::move(meta)) : std::nullopt;
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

SourceConfig SourceOf(const Json& set, const SourceConfig& list, const std::string& where) {
  SourceConfig source;
  source.listed_in = where;
  source.annotations = GetString(set, "annotation", where);
  const std::string root = GetString(set, "root", where, "");
  if (!root.empty()) source.images = root;
  source.max_tiles = GetInt(set, "max_dynamic_patch", where, list.max_tiles);
  source.repeat =
      list.repeat * GetNumber(set, "repeat_time", where, 1) * GetNumber(set, "weight", where, 1);
  if (!(source.repeat >= 0 && source.repeat <= 1000)) {
    throw DataError(fmt::format("{}: it would be used {:g} times in an epoch; 0 to 1000 can be",
                                where, source.repeat));
  }
  return source;
}

// The entry `name` of a list of data sets.
const Json& EntryOf(const Json& meta, const std::string& name, const std::string& path) {
  if (const auto found = meta.find(name); found != meta.end()) return *found;
  std::vector<std::string> names;
  for (const auto& [known, set] : meta.items()) names.push_back(known);
  const std::string near = NearestName(name, names);
  throw DataError(fmt::format(
      "{}: has no data set '{}'; {}", path, ShownText(name),
      near.empty() ? "correct `datasets`" : fmt::format("did you mean '{}'?", ShownText(near))));
}

// The sources that a list stands for: the named ones, in that order, or all of InternVL's, where
// none is named.
std::vector<SourceConfig> SourcesIn(const Json& meta, const SourceConfig& list) {
  const bool info = IsDatasetInfo(meta);
  std::vector<std::string> names = list.datasets;
  if (names.empty() && info && meta.size() > 1) {
    throw DataError(
        fmt::format("{}: is a list of {} data sets; name those to train on: datasets: [{}]",
                    list.annotations, meta.size(), ShownText(meta.begin().key())));
  }
  if (list.keys.given()) {
    throw DataError(list.annotations +
                    ": is a list of data sets; leave out columns and tags, which are its entries'");
  }
  if (names.empty()) {
    for (const auto& [name, set] : meta.items()) names.push_back(name);
  }
  std::vector<SourceConfig> sources;
  for (const std::string& name : names) {
    const Json& set = EntryOf(meta, name, list.annotations);
    if (info) {
      sources.push_back(SourceOfDataset(set, name, list));
    } else {
      const std::string where = list.annotations + ": " + ShownText(name);
      CheckDataSet(set, where);
      sources.push_back(SourceOf(set, list, where));
    }
  }
  return sources;
}

// Throws where an item of the list at `key` names no file, or has columns that make no record.
void CheckSources(const std::vector<SourceConfig>& sources, const char* key) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto refuse = [&](const char* what) {
      throw ConfigError(fmt::format("{}.{}.{}", key, i, what));
    };
    if (sources[i].annotations.empty()) refuse("annotations: is missing; give a file of records");
    const RecordKeys& keys = sources[i].keys;
    if (!keys.columns) continue;
    const RecordColumns& columns = *keys.columns;
    const bool pair = !columns.response.empty(), turns = !columns.messages.empty();
    if (!pair && !turns)
      refuse("columns: says neither where answers are (response) nor turns (messages); give one");
    if (turns && (pair || !columns.prompt.empty() || !columns.query.empty()))
      refuse("columns: messages are whole conversations; leave out prompt, query and response");
    if (keys.tags && !turns) refuse("tags: are of turns; give columns.messages, or leave them out");
  }
}

// Held-out records are used once at most, whatever times a list of training data gives.
void UseOnce(std::vector<SourceConfig>& sources, const char* key) {
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].repeat > 1) {
      throw ConfigError(
          fmt::format("{}.{}.repeat: only sources to train on are repeated; leave it out", key, i));
    }
    if (sources[i].samples == 0) continue;
    sources[i].max_samples = sources[i].samples;
    sources[i].samples = 0;
  }
  std::vector<SourceConfig> all;
  for (const SourceConfig& given : sources) {
    std::vector<SourceConfig> expanded = {given};
    expanded[0].take = TakenPart::kFirst;
    ExpandSources(expanded);
    for (SourceConfig& source : expanded) {
      // Of a list's entries what the list's own source says, not what they say of training.
      source.take = given.take;
      if (!source.listed_in.empty()) {
        source.repeat = given.repeat;
        source.samples = 0, source.max_samples = given.max_samples;
      }
      all.push_back(std::move(source));
    }
  }
  sources = std::move(all);
}

// Questions are asked from the first on.
void RefuseParts(const std::vector<SourceConfig>& sources, const char* key, const char* samples) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceConfig& source = sources[i];
    const char* part = source.repeat < 1                  ? "repeat"
                       : source.samples > 0               ? "samples"
                       : source.max_samples > 0           ? "max_samples"
                       : source.take != TakenPart::kFirst ? "take"
                                                          : nullptr;
    if (part == nullptr) continue;
    throw ConfigError(
        fmt::format("{}.{}.{}: questions are asked from the first on; leave it out, "
                    "and set {} to use fewer",
                    key, i, part, samples));
  }
}

}  // namespace

void ExpandSources(std::vector<SourceConfig>& sources) {
  std::vector<SourceConfig> expanded;
  for (const SourceConfig& source : sources) {
    const bool llava = IsLlavaList(source.annotations);
    const std::optional<Json> meta = llava ? std::nullopt : ReadMeta(source.annotations);
    if (!meta && !source.datasets.empty()) {
      throw ConfigError(source.annotations +
                        ": is no list of named data sets; leave out `datasets`, or give InternVL's "
                        "meta file or LLaMA-Factory's dataset_info.json");
    }
    const auto refuse = [&](const char* what) {
      throw ConfigError(fmt::format(
          "{}: is a list of data sets; leave out {}, which its entries say for themselves",
          source.annotations, what));
    };
    if ((llava || meta) && source.samples > 0) refuse("samples");
    SourceConfig list = source;
    list.take = TakenPart::kFirst;
    std::vector<SourceConfig> sets = llava  ? SourcesOfLlavaList(list)
                                     : meta ? SourcesIn(*meta, list)
                                            : std::vector{source};
    for (SourceConfig& set : sets) {
      const bool part = llava && set.max_samples > 0;
      const bool own = set.samples > 0 || part || set.take != TakenPart::kFirst;
      if ((llava || meta) && source.take != TakenPart::kFirst) {
        if (own) refuse("take");
        set.take = source.take;
      }
      if (!part || (source.max_samples > 0 && source.max_samples < set.max_samples))
        set.max_samples = source.max_samples;
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
  ResolveHubNames(config);
  // Steps of the command line are of this run, epochs those of the recipe.
  const auto given = [&](std::string_view key) {
    return std::any_of(overrides.begin(), overrides.end(),
                       [&](const Override& each) { return each.key == key; });
  };
  if (given("train.steps") && given("train.epochs") && config.train.epochs > 0) {
    throw ConfigError(
        "--set train.steps and --set train.epochs: both say how long the run is; give one");
  }
  if (given("train.steps")) config.train.epochs = 0;
  CheckSources(config.data.train, "data.train");
  CheckSources(config.data.eval, "data.eval");
  CheckSources(config.eval.answers, "eval.answers");
  ExpandSources(config.data.train);
  UseOnce(config.data.eval, "data.eval");
  RefuseParts(config.eval.answers, "eval.answers", "eval.answer_samples");
  UseOnce(config.eval.answers, "eval.answers");
  ResolveTemplate(&config);
  return config;
}

}  // namespace equipoise
