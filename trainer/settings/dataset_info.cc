#include "trainer/settings/dataset_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/nearest.h"
#include "configs/base/shown_text.h"
#include "trainer/settings/hub_cache.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

constexpr char kHub[] = "hf_hub_url";
constexpr std::array<const char*, 5> kElsewhere = {kHub, "ms_hub_url", "om_hub_url", "script_url",
                                                   "cloud_file_name"};

[[noreturn]] void RefuseKey(const std::string& key, const std::vector<std::string>& known,
                            const std::string& where) {
  const std::string near = NearestName(key, known);
  throw DataError(
      fmt::format("{}: '{}' is not known here; {}", where, ShownText(key),
                  near.empty() ? "take it out" : fmt::format("did you mean '{}'?", near)));
}

// Refuses what a data set asks for and would not get.
void CheckEntry(const Json& set, const std::string& where) {
  constexpr std::array<std::string_view, 10> kKnown = {
      "file_name", "file_sha1", "formatting", "ranking", "subset",
      "split",     "folder",    "columns",    "tags",    "num_samples"};
  const bool hub = set.contains(kHub);  // comes before all others there too
  for (const char* key : kElsewhere) {
    if (hub || !set.contains(key)) continue;
    throw DataError(fmt::format(
        "{}: {}: nothing is downloaded or run; fetch its files, and write an entry with file_name",
        where, key));
  }
  for (const auto& [key, value] : set.items()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) continue;
    if (hub && std::find(kElsewhere.begin(), kElsewhere.end(), key) != kElsewhere.end()) continue;
    RefuseKey(key, {kKnown.begin(), kKnown.end()}, where);
  }
  if (GetBool(set, "ranking", where, false))
    throw DataError(where + ": ranking: preference data is not trained on; give another data set");
}

// Reads the texts of an object, such as "columns", into the fields of a struct.
struct TextReader {
  const Json& object;
  const std::string& where;
  std::vector<std::string> known = {};

  void operator()(const char* name, std::string& value, const char*, const Rule& = {}) {
    known.emplace_back(name);
    value = GetString(object, name, where, "");
  }
};

template <class Texts>
Texts ReadTexts(const Json& object, const std::string& where) {
  if (!object.is_object()) throw DataError(where + ": is no object");
  Texts texts;
  TextReader reader{object, where};
  texts.VisitFields(reader);
  for (const auto& [key, value] : object.items()) {
    if (std::find(reader.known.begin(), reader.known.end(), key) != reader.known.end()) continue;
    // Read by no release of LLaMA-Factory, and found in published lists.
    if (key == "tool_calls_tag") continue;
    for (const char* preference : {"chosen", "rejected", "kto_tag"}) {
      if (key != preference) continue;
      throw DataError(fmt::format("{}: {}: preference data is not trained on", where, key));
    }
    if (key == "audios") throw DataError(where + ": audios: sound is not supported");
    RefuseKey(key, reader.known, where);
  }
  return texts;
}

// The folder of the Hub's cache in which an entry's files lie: `folder` or `subset` of it, or
// `data`, where published data sets have them.
fs::path FolderOnHub(const Json& set, const std::string& where) {
  const std::string name = GetString(set, kHub, where);
  const std::optional<std::string> found = CachedOnHub(name, HubKind::kDataset);
  if (!found) {
    throw DataError(fmt::format(
        "{}: {}: '{}' is not in the Hub's cache, and nothing is downloaded; `hf download "
        "--repo-type dataset {}`, or fetch its files and write an entry with file_name",
        where, kHub, ShownText(name), ShownText(name)));
  }
  for (const char* key : {"folder", "subset"}) {
    const std::string within = GetString(set, key, where, "");
    if (within.empty()) continue;
    if (fs::is_directory(fs::path(*found) / within)) return fs::path(*found) / within;
    throw DataError(
        fmt::format("{}: {}: no folder '{}' in {}; find its files there, and write an entry with "
                    "file_name",
                    where, key, ShownText(within), *found));
  }
  const fs::path folder = *found, data = folder / "data";
  return fs::is_directory(data) ? data : folder;
}

// The file, or the range of files, of the entry's split there: `train.json`, or all of
// `train-00000-of-00004.parquet`; or the only file of records, whatever its name.
std::string FileOnHub(const Json& set, const std::string& where) {
  const fs::path folder = FolderOnHub(set, where);
  const std::string split = GetString(set, "split", where, "train");
  std::vector<std::string> files, all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename(), ending = entry.path().extension();
    if (ending != ".json" && ending != ".jsonl" && ending != ".parquet") continue;
    if (name.starts_with("dataset_info")) continue;  // describes the others
    all.push_back(name);
    if (name.starts_with(split + "-") || name.starts_with(split + ".")) files.push_back(name);
  }
  if (files.empty() && split == "train") files = all;
  if (files.size() == 1) return folder / files.front();
  const std::string count = fmt::format("{:05}", files.size());
  const auto shard = [&](const std::string& number) {
    return fmt::format("{}-{}-of-{}.parquet", split, number, count);
  };
  size_t shards = 0;
  for (size_t i = 0; i < files.size(); ++i)
    shards += std::count(files.begin(), files.end(), shard(fmt::format("{:05}", i)));
  if (shards > 1 && shards == files.size())
    return folder / shard(fmt::format("{{00000..{:05}}}", shards - 1));
  throw DataError(fmt::format(
      "{}: {}: which files of {} are its {} split is not told by their names; write an entry with "
      "file_name",
      where, kHub, folder.string(), ShownText(split)));
}

RecordColumns ColumnsOf(const Json& set, bool turns, const std::string& where) {
  RecordColumns columns;
  if (const auto given = set.find("columns"); given != set.end() && !given->is_null()) {
    columns = ReadTexts<RecordColumns>(*given, where + ": columns");
  } else if (!turns) {
    columns.prompt = "instruction";
    columns.query = "input";
    columns.response = "output";
  }
  if (turns) {
    if (columns.messages.empty()) columns.messages = "conversations";
    columns.prompt = columns.query = columns.response = columns.history = "";
  } else if (columns.response.empty()) {
    throw DataError(where +
                    ": columns: no response: text without answers is not trained on; give another "
                    "data set");
  } else {
    columns.messages = "";
  }
  return columns;
}

}  // namespace

bool IsDatasetInfo(const Json& object) {
  if (!object.is_object()) return false;
  const auto says_where = [](const Json& set) {
    return set.contains("file_name") ||
           std::any_of(kElsewhere.begin(), kElsewhere.end(),
                       [&](const char* key) { return set.contains(key); });
  };
  return std::all_of(object.begin(), object.end(),
                     [](const Json& set) { return set.is_object(); }) &&
         std::any_of(object.begin(), object.end(), says_where);
}

SourceConfig SourceOfDataset(const Json& set, const std::string& name, const SourceConfig& list) {
  const std::string where = list.annotations + ": " + ShownText(name);
  CheckEntry(set, where);
  // `train[:10%]` of the datasets library; a file has but one split, whatever its name.
  if (const std::string split = GetString(set, "split", where, ""); split.find('[') != split.npos) {
    throw DataError(
        fmt::format("{}: split: '{}': a part is not taken; take it out, and give "
                    "num_samples",
                    where, ShownText(split)));
  }
  const std::string form = GetString(set, "formatting", where, "alpaca");
  const bool turns = form == "sharegpt" || form == "openai";
  if (!turns && form != "alpaca") {
    throw DataError(fmt::format("{}: formatting: '{}' is none of alpaca, sharegpt, openai", where,
                                ShownText(form)));
  }
  SourceConfig source = list;
  source.datasets.clear();
  source.listed_in = where;
  const bool hub = set.contains(kHub);
  fs::path folder = fs::path(list.annotations).parent_path();
  source.annotations =
      hub ? FileOnHub(set, where) : (folder / GetString(set, "file_name", where)).string();
  if (hub) folder = fs::path(source.annotations).parent_path();
  for (const char* ending : {".txt", ".csv", ".arrow"}) {
    if (!source.annotations.ends_with(ending)) continue;
    throw DataError(fmt::format("{}: file_name: {} files are not read; write it as JSON or Parquet",
                                where, ending));
  }
  if (const auto samples = set.find("num_samples"); samples != set.end() && !samples->is_null()) {
    source.samples = GetInt(set, "num_samples", where);
    source.take = TakenPart::kRandom;
    if (source.samples < 1 || source.samples > SourceConfig::kMostSamples) {
      throw DataError(fmt::format("{}: num_samples is {}; it is from 1 to {}", where,
                                  source.samples, SourceConfig::kMostSamples));
    }
  }
  if (list.images == SourceConfig().images) source.images = folder.empty() ? "." : folder.string();
  source.keys.columns = ColumnsOf(set, turns, where);
  // LLaMA-Factory's defaults for an entry without tags are words that are known.
  const auto tags = set.find("tags");
  if (turns && tags != set.end() && !tags->is_null())
    source.keys.tags = ReadTexts<RecordTags>(*tags, where + ": tags");
  return source;
}

}  // namespace equipoise
