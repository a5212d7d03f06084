#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/config_json.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/common/json_difference.h"
#include "trainer/settings/run_config.h"

namespace equipoise {
namespace {

// The content keys of the sources' annotation files; null when the sections have none.
const Json* FileKeys(const Json& sections) {
  const auto data = sections.find("data");
  if (data == sections.end() || !data->is_object()) return nullptr;
  const auto files = data->find("files");
  return files == data->end() || !files->is_array() ? nullptr : &*files;
}

std::string AnnotationsOf(const Json& sections, size_t source) {
  const auto place = Json::json_pointer("/data/train") / source;
  if (!sections.contains(place) || !sections[place].is_object()) return "";
  return sections[place].value("annotations", "");
}

// The annotation files whose content changed, comma-separated; empty where a source has another
// file now, which is a difference of the configuration.
std::string ChangedFiles(const Json& saved, const Json& current) {
  const Json *before = FileKeys(saved), *now = FileKeys(current);
  if (before == nullptr || now == nullptr || before->size() != now->size()) return "";
  std::string names;
  for (size_t i = 0; i < now->size(); ++i) {
    if ((*before)[i] == (*now)[i]) continue;
    const std::string name = AnnotationsOf(current, i), was = AnnotationsOf(saved, i);
    if (!was.empty() && name != was) return "";
    names += (names.empty() ? "" : ", ") + (name.empty() ? fmt::format("data.train[{}]", i) : name);
  }
  return names;
}

// Adds to `saved` the defaults of keys that only `current` has: settings newer than the checkpoint.
void AddDefaults(Json& saved, const Json& current, const Json& defaults) {
  if (!saved.is_object() || !current.is_object() || !defaults.is_object()) return;
  for (const auto& [key, value] : current.items()) {
    if (!defaults.contains(key)) continue;
    if (!saved.contains(key)) {
      saved[key] = defaults[key];
    } else {
      AddDefaults(saved[key], value, defaults[key]);
    }
  }
}

Json WithDefaults(Json saved, const Json& current) {
  // data.allow_outside has taken its place.
  if (saved.contains("data") && saved["data"].is_object()) saved["data"].erase("follow_links");
  const RunConfig defaults;
  const Json source = ConfigToJson(SourceConfig());
  for (const char* list : {"train", "eval"}) {
    const Json::json_pointer place = Json::json_pointer("/data") / list;
    if (!saved.contains(place) || !saved[place].is_array()) continue;
    if (!current.contains(place) || !current[place].is_array()) continue;
    const size_t both = std::min(saved[place].size(), current[place].size());
    for (size_t i = 0; i < both; ++i) AddDefaults(saved[place][i], current[place][i], source);
  }
  // Where the base of adapters lies, which older programs wrote beside what it is.
  if (current.contains(Json::json_pointer("/model/base_weights"))) {
    for (const char* place : {"/model/vision", "/model/llm", "/model/projector/weights"}) {
      const Json::json_pointer key(place);
      if (saved.contains(key)) saved[key.parent_pointer()].erase(key.back());
    }
  }
  // What a program that did not write it trained with is not known.
  const Json::json_pointer micro_batch("/train/micro_batch");
  if (current.contains(micro_batch) && saved.contains("train") && saved["train"].is_object() &&
      !saved.contains(micro_batch)) {
    saved[micro_batch] = current[micro_batch];
  }
  AddDefaults(saved, current,
              {{"model", ConfigToJson(defaults.model)}, {"data", ConfigToJson(defaults.data)}});
  return saved;
}

// The sections without content hashes, which mean nothing to a user.
Json WithoutContent(Json sections) {
  if (sections.contains("data") && sections["data"].is_object()) {
    sections["data"].erase("files");
    sections["data"].erase("content");
  }
  return sections;
}

std::string Content(const Json& sections) {
  const auto data = sections.find("data");
  return data == sections.end() || !data->is_object() ? "" : data->value("content", Json()).dump();
}

}  // namespace

void CheckSections(const std::string& checkpoint_dir, const Json& saved, const Json& current) {
  const std::string files = ChangedFiles(saved, current);
  if (!files.empty()) {
    throw ConfigError(
        fmt::format("{}: made from other records: {} changed since; put back what it was, or start "
                    "anew in another run.dir",
                    checkpoint_dir, files));
  }
  const std::vector<JsonDifference> differences =
      JsonDifferences(WithoutContent(WithDefaults(saved, current)), WithoutContent(current));
  if (!differences.empty()) {
    throw ConfigError(fmt::format(
        "{}: made with another configuration: {}; change back, or start anew in another run.dir",
        checkpoint_dir, ListDifferences(differences, " was ", " and is ")));
  }
  if (Content(saved) == Content(current)) return;
  throw ConfigError(fmt::format(
      "{}: made from other samples: records of data.train, their pictures' sizes or the tokenizer "
      "changed since, or another version of this program made it, which counts tokens otherwise; "
      "put back what it was, or start anew in another run.dir, from these weights with "
      "`equipoise export {} --out FOLDER` and model.hf",
      checkpoint_dir, ShellWord(checkpoint_dir)));
}

std::string SettingsDifference(const Json& saved, const Json& current) {
  if (saved.empty()) return "";
  return ListDifferences(JsonDifferences(saved, current), " was ", " and is ");
}

std::string EnvironmentDifference(const Json& saved, const Json& current) {
  return ListDifferences(JsonDifferences(saved, current), " ", " -> ");
}

}  // namespace equipoise
