#include "trainer/settings/llava_list.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/yaml_reader.h"

namespace equipoise {
namespace {

struct LlavaDataset {
  std::string json_path;
  std::string sampling_strategy = "all";

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("json_path", json_path, "file of records");
    visit("sampling_strategy", sampling_strategy, "which of them are used");
  }
};

struct LlavaList {
  std::vector<LlavaDataset> datasets;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("datasets", datasets, "data sets");
  }
};

// The number in `text`, behind `before` and in front of `after`.
std::optional<int64_t> NumberIn(std::string_view text, std::string_view before,
                                std::string_view after) {
  if (!text.starts_with(before) || !text.ends_with(after)) return std::nullopt;
  text = text.substr(before.size(), text.size() - before.size() - after.size());
  int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  return whole && number > 0 ? std::optional(number) : std::nullopt;
}

void Choose(const std::string& strategy, const std::string& where, SourceConfig& source) {
  if (strategy == "all") return;
  using Word = std::pair<std::string_view, TakenPart>;
  constexpr std::array<Word, 3> kWords = {
      {{"first:", TakenPart::kFirst}, {"end:", TakenPart::kLast}, {"random:", TakenPart::kRandom}}};
  for (const auto& [word, take] : kWords) {
    const auto share = NumberIn(strategy, word, "%"), samples = NumberIn(strategy, word, "");
    source.take = take;
    if (share && *share <= 100) {
      source.repeat *= static_cast<double>(*share) / 100;
      return;
    }
    if (samples && *samples <= SourceConfig::kMostSamples) {
      source.max_samples = *samples;  // each record once at most
      return;
    }
  }
  throw DataError(fmt::format(
      "{}: sampling_strategy: '{}' is neither all nor first:, end: or random: with a number or a "
      "percentage",
      where, ShownText(strategy)));
}

}  // namespace

bool IsLlavaList(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

std::vector<SourceConfig> SourcesOfLlavaList(const SourceConfig& list) {
  LlavaList read;
  try {
    ReadConfig(list.annotations, {}, read);
  } catch (const ConfigError& error) {
    throw DataError(
        fmt::format("{} (records in YAML are not read; this is taken for LLaVA-NeXT's "
                    "list of data sets)",
                    error.what()));
  }
  if (read.datasets.empty()) throw DataError(list.annotations + ": has no `datasets`");
  std::vector<SourceConfig> sources;
  for (size_t i = 0; i < read.datasets.size(); ++i) {
    const LlavaDataset& set = read.datasets[i];
    SourceConfig source = list;
    source.listed_in = fmt::format("{}: datasets.{}", list.annotations, i);
    if (set.json_path.empty()) throw DataError(source.listed_in + ": json_path is missing");
    source.annotations = set.json_path;
    Choose(set.sampling_strategy, source.listed_in, source);
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace equipoise
