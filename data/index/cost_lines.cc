#include "data/index/cost_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/nearest.h"
#include "data/records/line_reader.h"

namespace equipoise {
namespace {

constexpr int64_t kLongestLine = 1 << 16;
constexpr int64_t kMostTiles = 65535, kMostTokens = (1 << 24) - 1;
const char kTiles[] = "vit_num", kTokens[] = "token_num", kTargets[] = "target_num";
const std::vector<std::string> kKnown = {kTiles,        kTokens,      kTargets,
                                         "image_flags", "image_flag", "id"};

struct Counts {
  int64_t tiles = -1, tokens = -1, targets = -1;
};

// Reads a line of whole numbers alone, without blanks, as programs write it: the fast path. False
// for any other line, which ReadAnyLine() then parses and checks.
bool ReadPlainLine(std::string_view text, Counts& counts) {
  const char *at = text.data(), *end = at + text.size();
  if (at == end || *at != '{') return false;
  do {
    if (end - ++at < 3 || *at != '"') return false;
    const char* quote = std::find(++at, end, '"');
    const std::string_view key(at, static_cast<size_t>(quote - at));
    if (end - quote < 3 || quote[1] != ':') return false;
    int64_t value = 0;
    const auto [after, error] = std::from_chars(quote + 2, end, value);
    if (error != std::errc() || after == end) return false;
    if (key == kTiles && counts.tiles < 0)
      counts.tiles = value;
    else if (key == kTokens && counts.tokens < 0)
      counts.tokens = value;
    else if (key == kTargets && counts.targets < 0 && value >= 0)
      counts.targets = value;
    else if (key != "image_flags" && key != "image_flag" && key != "id")
      return false;
    at = after;
  } while (*at == ',');
  if (counts.targets < 0) counts.targets = counts.tokens;
  return *at == '}' && at + 1 == end && counts.tiles >= 0 && counts.tokens >= 0;
}

[[noreturn]] void RefuseKey(const std::string& key, const std::string& place) {
  const std::string nearest = NearestName(key, kKnown);
  const std::string advice = nearest.empty() ? "a line has vit_num and token_num"
                                             : fmt::format("did you mean '{}'?", nearest);
  throw DataError(fmt::format("{}: '{}' is no known key; {}", place, key, advice));
}

Counts ReadAnyLine(std::string_view text, const std::string& place) {
  const Json json = ParseJson(text, place);
  if (!json.is_object()) throw DataError(place + ": is no JSON object; write one a line");
  for (const auto& [key, value] : json.items()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) == kKnown.end()) RefuseKey(key, place);
  }
  const int64_t tokens = GetInt(json, kTokens, place);
  return {GetInt(json, kTiles, place), tokens,
          json.contains(kTargets) ? GetInt(json, kTargets, place) : tokens};
}

void CheckCounts(const Counts& counts, const std::string& place) {
  if (counts.tokens < 1) {
    throw DataError(
        fmt::format("{}: token_num is {}; a sample has 1 token or more, take the line out", place,
                    counts.tokens));
  }
  if (counts.tokens > kMostTokens) {
    throw DataError(
        fmt::format("{}: token_num is {}; the most is {}", place, counts.tokens, kMostTokens));
  }
  if (counts.targets < 0 || counts.targets > counts.tokens) {
    throw DataError(
        fmt::format("{}: target_num is {}; it is from 0 to token_num", place, counts.targets));
  }
  if (counts.tiles < 0 || counts.tiles > kMostTiles) {
    throw DataError(
        fmt::format("{}: vit_num is {}; it is from 0 to {}", place, counts.tiles, kMostTiles));
  }
}

}  // namespace

std::vector<SampleSize> ReadCostLines(const std::string& path, const ImageSpec& images) {
  const TextFile file(path);
  LineReader reader(&file, 0, file.bytes, kLongestLine);
  std::vector<SampleSize> sizes;
  const auto place = [&path](int64_t line) { return fmt::format("{}:{}", path, line); };
  for (Line line; reader.Next(line);) {
    if (line.too_long) throw DataError(place(line.number) + ": is too long for a sample's costs");
    if (line.number != std::ssize(sizes) + 1) {
      throw DataError(place(std::ssize(sizes) + 1) +
                      ": is empty; samples are numbered by lines, take it out");
    }
    Counts counts;
    if (!ReadPlainLine(line.text, counts)) counts = ReadAnyLine(line.text, place(line.number));
    CheckCounts(counts, place(line.number));
    sizes.emplace_back(images.LoadOfTiles(counts.tiles), counts.tokens, counts.targets);
  }
  if (sizes.empty()) throw DataError(path + ": has no lines; give one sample a line");
  return sizes;
}

}  // namespace equipoise
