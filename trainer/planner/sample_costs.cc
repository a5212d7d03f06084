#include "trainer/planner/sample_costs.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "data/index/cost_index_open.h"
#include "data/index/cost_lines.h"
#include "data/loading/epoch_samples.h"
#include "data/loading/packing.h"
#include "data/records/annotation_file.h"
#include "data/text/tokenizer.h"
#include "models/families/families.h"
#include "trainer/settings/data_options.h"
#include "trainer/settings/histograms.h"

// Without a cost index, samples are drawn from the annotations: the line after each of a number of
// evenly spaced byte offsets. The usable records of a source are estimated as
// (usable records read / bytes read) x bytes of the file, and the sources are mixed in proportion
// to these estimates times `repeat`. The cost is independent of the size of the data.

namespace equipoise {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSampledRecords = 2000;  // records read, over all sources

SampleCosts CostsOf(SampleList list, std::string source) {
  SampleCosts costs{std::move(list), 0, std::move(source)};
  for (int64_t i = 0; i < costs.list.size; ++i) costs.usable += costs.list.size_at(i) ? 1 : 0;
  return costs;
}

SampleCosts CostsOf(std::vector<SampleSize> sizes, std::string source) {
  const auto owned = std::make_shared<const std::vector<SampleSize>>(std::move(sizes));
  return CostsOf(SampleList{std::ssize(*owned),
                            [owned](int64_t i) { return (*owned)[static_cast<size_t>(i)]; }},
                 std::move(source));
}

SampleSize ReadSize(int64_t tiles, int64_t tokens, const ImageSpec& images,
                    const std::string& where) {
  const int64_t most_tiles = INT32_MAX / images.rows_per_tile;
  if (tiles < 0 || tokens < 1 || tiles > most_tiles || tokens > INT32_MAX) {
    throw DataError(fmt::format("{}: {} tiles and {} tokens; give a sample one token at least",
                                where, tiles, tokens));
  }
  return {images.LoadOfTiles(tiles), tokens, tokens};
}

// The sizes of a histogram with rows [tiles, tokens, number of samples]; the share `target_share`
// of the tokens are targets.
std::vector<SampleSize> SizesOfHistogram(const Json& json, const ImageSpec& images,
                                         const std::string& path) {
  if (!json.is_object() || !json.contains("rows") || !json["rows"].is_array()) {
    throw DataError(fmt::format("{}: has no list 'rows' of [tiles, tokens, samples]", path));
  }
  const double share = GetNumber(json, "target_share", path, /*fallback=*/1);
  if (!(share > 0 && share <= 1)) {
    throw DataError(fmt::format(
        "{}: target_share is {:g}; it is the share of tokens with a loss, above 0 and up to 1",
        path, share));
  }
  std::vector<SampleSize> sizes;
  for (const Json& row : json["rows"]) {
    const bool fits = row.is_array() && row.size() == 3 &&
                      std::all_of(row.begin(), row.end(),
                                  [](const Json& number) { return number.is_number_integer(); });
    if (!fits || row[2] < 0) {
      throw DataError(
          fmt::format("{}: a row is not [tiles, tokens, samples]: {}", path, row.dump()));
    }
    SampleSize size = ReadSize(row[0], row[1], images, path);
    size.targets = std::max(1, static_cast<int32_t>(std::lround(share * size.tokens)));
    sizes.insert(sizes.end(), row[2].get<size_t>(), size);
  }
  return sizes;
}

SampleCosts ReadCosts(const std::string& costs, const ImageSpec& images) {
  if (fs::exists(costs)) {
    const bool histogram = fs::path(costs).extension() == ".json";
    return CostsOf(histogram ? SizesOfHistogram(ReadJsonFile(costs), images, costs)
                             : ReadCostLines(costs, images),
                   histogram ? "histogram " + costs : costs);
  }
  const std::string_view text = HistogramText(costs);
  if (text.empty()) {
    throw ConfigError(
        fmt::format("data.costs: there is no file {}; give a JSONL file of costs, a histogram in a "
                    ".json file, or one of the program's histograms ({})",
                    costs, fmt::join(HistogramNames(), ", ")));
  }
  return CostsOf(SizesOfHistogram(ParseJson(text, costs), images, costs), "histogram " + costs);
}

bool HasAnnotations(const DataConfig& data) {
  return !data.train.empty() &&
         std::all_of(data.train.begin(), data.train.end(),
                     [](const SourceConfig& source) { return fs::exists(source.annotations); });
}

// Tokenizer and options that turn records into samples, as in training.
struct Reading {
  Reading(const RunConfig& config, const ModelConfig& model)
      : tokenizer(ReadTokenizer(config, model)),
        chat_template(config.data.chat_template, config.data.system, &tokenizer,
                      model.image_token_id, ChatOptionsOf(config.data)),
        options(SampleOptionsOf(config.data, model)) {}

  Tokenizer tokenizer;
  ChatTemplate chat_template;
  SampleOptions options;
};

DataError NothingRepeated() {
  return DataError(
      "data.train: `repeat` of the sources leaves no sample of the records that can be used; raise "
      "it for one of them");
}

std::optional<SampleCosts> FromIndex(const RunConfig& config, const Reading& reading) {
  CostIndexOptions find;
  find.images = reading.options.images;
  find.fallback_folder = config.run.dir + "/cache";
  find.notice = [](const std::string& text) { spdlog::warn("{}", text); };
  auto found = FindCostIndex(config.data.train, config.data, reading.chat_template, find);
  if (!found) return std::nullopt;
  const auto index = std::make_shared<const CostIndex>(std::move(*found));
  SampleCosts costs = CostsOfIndex(*index, config);
  if (costs.list.size == 0 && index->CountDefects()[static_cast<size_t>(Defect::kNone)] > 0)
    throw NothingRepeated();
  // The function owns the index from now on.
  costs.list.size_at = [index, size_at = costs.list.size_at](int64_t i) { return size_at(i); };
  return costs;
}

// Records read at evenly spaced offsets of a source.
struct SomeRecords {
  std::vector<SampleSize> sizes;      // sizes of usable records
  double total = 0;                   // estimated usable records of the source, by its bytes
  std::map<Defect, int64_t> defects;  // numbers of other records
  std::string first_reason;           // of the first defect
};

SomeRecords ReadSome(const SampleScanner& scanner, const DataConfig& data, size_t source,
                     int64_t most) {
  SomeRecords some;
  const AnnotationFile annotations(data.train[source].annotations);
  const int64_t bytes_of_file = annotations.file().bytes;
  const int64_t stride = std::max<int64_t>(1, bytes_of_file / most);
  int64_t last = -1;  // offset of the last record taken
  double bytes = 0, records = 0;
  for (int64_t at = 0; at < bytes_of_file; at += stride) {
    const auto reader = annotations.Read(at, bytes_of_file, data.limits.record_bytes);
    Line line;
    if (!reader->Next(line) || static_cast<int64_t>(line.offset) <= last) continue;
    last = static_cast<int64_t>(line.offset);
    bytes += static_cast<double>(line.bytes + 1);
    ++records;
    if (line.too_long) continue;
    const ScannedSample sample = scanner.Scan(source, line.text);
    if (sample.defect != Defect::kNone) {
      if (++some.defects[sample.defect] == 1 && some.first_reason.empty())
        some.first_reason = sample.reason;
      continue;
    }
    some.sizes.push_back({sample.all_pictures(), std::ssize(sample.encoded.ids), sample.trained});
  }
  if (records == 0) return some;
  some.total = static_cast<double>(some.sizes.size()) / bytes * static_cast<double>(bytes_of_file);
  return some;
}

// Throws DataError when none of the records that were read can be used.
void RequireUsable(const std::vector<SomeRecords>& sources, const std::string& annotations) {
  std::map<Defect, int64_t> defects;
  std::string reason;
  int64_t bad = 0;
  for (const SomeRecords& some : sources) {
    if (!some.sizes.empty()) return;
    if (reason.empty()) reason = some.first_reason;
    for (const auto& [defect, count] : some.defects) defects[defect] += count, bad += count;
  }
  if (bad == 0) return;  // having no record at all is reported by the caller
  std::string kinds;
  for (const auto& [defect, count] : defects)
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", DefectName(defect), count);
  throw DataError(
      fmt::format("{}: none of {} records that were read can be used ({}), such as: {}; see all "
                  "with `equipoise data CONFIG check`",
                  annotations, bad, kinds, reason));
}

// Makes totals of all records those of an epoch, as EpochSamples takes them.
void ScaleToEpoch(const std::vector<SourceConfig>& train, std::vector<SomeRecords>& sources) {
  size_t source = 0;
  for (const RepeatedSources& group : SourceRepeats(train)) {
    const size_t end = source + static_cast<size_t>(group.sources);
    double all = 0, times = group.times;
    for (size_t i = source; i < end; ++i) all += sources[i].total;
    const int64_t limit = group.SamplesOf(std::llround(all));
    if (limit > 0 && all > 0) times *= static_cast<double>(limit) / all;
    for (; source < end; ++source) sources[source].total *= times;
  }
}

// The costs of some records, with as many of each source as its share of an epoch requires.
SampleCosts FromSomeRecords(const DataConfig& data, const Reading& reading) {
  const SampleScanner scanner(data.train, reading.options, &reading.chat_template);
  const auto most = kSampledRecords / static_cast<int64_t>(data.train.size()) + 1;
  std::vector<SomeRecords> sources;
  double epoch = 0;
  size_t read = 0;
  for (size_t source = 0; source < data.train.size(); ++source) {
    SomeRecords& some = sources.emplace_back(ReadSome(scanner, data, source, most));
    read += some.sizes.size();
  }
  ScaleToEpoch(data.train, sources);
  for (const SomeRecords& some : sources) epoch += some.total;
  RequireUsable(sources, data.train.front().annotations);
  if (read > 0 && epoch == 0) throw NothingRepeated();
  std::vector<SampleSize> sizes;
  for (const SomeRecords& some : sources) {
    if (some.sizes.empty()) continue;
    const auto count =
        static_cast<size_t>(std::llround(static_cast<double>(read) * some.total / epoch));
    for (size_t i = 0; i < count; ++i) sizes.push_back(some.sizes[i * some.sizes.size() / count]);
  }
  SampleCosts costs = CostsOf(std::move(sizes), fmt::format("{} records of data.train", read));
  costs.weight = epoch / static_cast<double>(std::max<int64_t>(costs.usable, 1));
  return costs;
}

SampleCosts Gather(const RunConfig& config, const ModelConfig& model) {
  const DataConfig& data = config.data;
  const bool has_tokenizer =
      !data.tokenizer.empty() || !config.model.hf.empty() || !config.model.llm.empty();
  std::optional<Reading> reading;
  if (HasAnnotations(data) && (has_tokenizer || data.costs.empty())) reading.emplace(config, model);
  if (reading) {
    if (auto costs = FromIndex(config, *reading)) return *costs;
  }
  if (!data.costs.empty()) return ReadCosts(data.costs, ImageSpecOf(model));
  if (reading) return FromSomeRecords(data, *reading);
  throw ConfigError(
      data.train.empty()
          ? "data.train: is empty; name the records to train on, or costs of samples in data.costs"
          : data.train[0].annotations +
                ": no such file; mend data.train, or give costs of samples in data.costs");
}

}  // namespace

int64_t SampleCosts::epoch_samples() const {
  return std::llround(weight * static_cast<double>(usable));
}

SampleCosts CostsOfIndex(const CostIndex& index, const RunConfig& config) {
  const auto seed = static_cast<uint64_t>(config.train.seed);
  const EpochSamples samples(&index, SourceRepeats(config.data.train), seed, /*epoch=*/0);
  return CostsOf(samples.list(), "cost index " + index.path());
}

SampleCosts GatherSampleCosts(const RunConfig& config, const ModelConfig& model) {
  SampleCosts costs = Gather(config, model);
  if (costs.usable == 0) {
    throw DataError(
        fmt::format("{}: holds no sample that can be used; give samples", costs.source));
  }
  return costs;
}

}  // namespace equipoise
