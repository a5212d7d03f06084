#include "data/text/text_normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/text/text_error.h"
#include "data/text/unicode_tables.h"
#include "data/text/utf8.h"

// Unicode's normalization (Standard Annex 15). Text that the form cannot change is copied; each
// stretch around code points that it may change is decomposed, the combining marks of every run are
// sorted stably by class, and starters are composed with their marks again where the form composes.

namespace equipoise {
namespace {

// Hangul syllables by arithmetic (Unicode, chapter 3.12).
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

// NFKD makes 11 times its bytes of U+FDFA, but no long text consists of such letters alone.
constexpr size_t kMostGrowth = 4, kFreeGrowth = 64 << 10;

bool IsCompatible(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

uint64_t PairOf(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

}  // namespace

TextNormalizer::TextNormalizer(std::optional<NormalForm> form, std::string source)
    : form_(form), source_(std::move(source)), combining_(kCombiningRuns) {
  if (!form_) return;
  ReadParts(kCanonicalParts);
  if (IsCompatible(*form_)) ReadParts(kCompatibleParts);
  MarkChanging();
}

void TextNormalizer::ReadParts(std::string_view table) {
  std::vector<uint32_t> composites;
  ForEachParts(table, [&](uint32_t point, bool again, const std::vector<uint32_t>& parts) {
    parts_of_[point] = {static_cast<uint32_t>(parts_.size()), static_cast<uint32_t>(parts.size())};
    parts_.insert(parts_.end(), parts.begin(), parts.end());
    if (again && composes()) composites.push_back(point);
  });
  // A composite of three parts is made of one of two parts and the last.
  std::stable_sort(composites.begin(), composites.end(),
                   [&](uint32_t a, uint32_t b) { return parts_of_[a].count < parts_of_[b].count; });
  for (const uint32_t composite : composites) {
    std::vector<uint32_t> parts;
    Decompose(composite, parts);
    const uint32_t last = parts.back();
    parts.pop_back();
    Compose(parts);
    composed_[PairOf(parts[0], last)] = composite;
  }
}

void TextNormalizer::MarkChanging() {
  for (const CodePointRange& range : NonZeroSet(kCombiningRuns).Ranges())
    changing_.Set(range.begin, range.end, 1);
  for (const auto& [point, parts] : parts_of_) {
    std::vector<uint32_t> points;
    Decompose(point, points);
    if (composes()) Compose(points);
    if (points.size() != 1 || points[0] != point) changing_.Set(point, point + 1, 1);
  }
  for (const auto& [pair, point] : composed_) {
    const auto second = static_cast<uint32_t>(pair);
    changing_.Set(second, second + 1, 1);
  }
  if (composes()) {
    changing_.Set(kVowels, kVowels + kVowelCount, 1);
    changing_.Set(kTails + 1, kTails + kTailCount, 1);
  } else {
    changing_.Set(kSyllables, kSyllables + kSyllableCount, 1);
  }
}

size_t TextNormalizer::FindChanging(std::string_view text, size_t at) const {
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {  // ASCII is the same in every form
      ++at;
      continue;
    }
    const CodePoint point = ReadCodePoint(text, at);
    if (changing_[point.value] != 0) break;
    at += point.bytes;
  }
  return at;
}

std::string TextNormalizer::Run(std::string_view text) const {
  if (!form_) return std::string(text);
  size_t at = FindChanging(text, 0);
  if (at == text.size()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  while (at < text.size()) {
    // The stretch begins with the code point before: a mark may join it.
    size_t begin = at;
    while (begin > done && (static_cast<uint8_t>(text[--begin]) & 0xC0) == 0x80) {
    }
    size_t end = at;
    while (end < text.size()) {
      const CodePoint point = ReadCodePoint(text, end);
      if (changing_[point.value] == 0) break;
      end += point.bytes;
    }
    out += text.substr(done, begin - done);
    AppendStretch(text.substr(begin, end - begin), out);
    if (out.size() > kMostGrowth * text.size() + kFreeGrowth) {
      throw TextError(fmt::format("{}: makes more than {} times as much of a text of {} bytes",
                                  source_, kMostGrowth, text.size()));
    }
    done = end;
    at = FindChanging(text, end);
  }
  out += text.substr(done);
  return out;
}

void TextNormalizer::AppendStretch(std::string_view stretch, std::string& out) const {
  std::vector<uint32_t> points;
  const size_t most = kMostGrowth * stretch.size() + kFreeGrowth;
  for (size_t i = 0; i < stretch.size() && points.size() <= most;) {
    const CodePoint point = ReadCodePoint(stretch, i);
    i += point.bytes;
    Decompose(point.value, points);
  }
  OrderMarks(points);
  if (composes()) Compose(points);
  for (const uint32_t point : points) AppendCodePoint(out, point);
}

void TextNormalizer::Decompose(uint32_t point, std::vector<uint32_t>& out) const {
  if (point >= kSyllables && point < kSyllables + kSyllableCount) {
    const uint32_t index = point - kSyllables;
    out.push_back(kLeads + index / (kVowelCount * kTailCount));
    out.push_back(kVowels + index / kTailCount % kVowelCount);
    if (index % kTailCount != 0) out.push_back(kTails + index % kTailCount);
    return;
  }
  const auto found = parts_of_.find(point);
  if (found == parts_of_.end()) return out.push_back(point);
  const auto begin = parts_.begin() + found->second.begin;
  out.insert(out.end(), begin, begin + found->second.count);
}

// Sorts every run of combining marks by class, in O(n log n).
void TextNormalizer::OrderMarks(std::vector<uint32_t>& points) const {
  for (auto begin = points.begin(); begin != points.end();) {
    if (combining_[*begin] == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, points.end(), [&](uint32_t c) { return combining_[c] == 0; });
    std::stable_sort(begin, end,
                     [&](uint32_t a, uint32_t b) { return combining_[a] < combining_[b]; });
    begin = end;
  }
}

uint32_t TextNormalizer::Composed(uint32_t first, uint32_t second) const {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels &&
      second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + second - kVowels) * kTailCount;
  }
  const bool open_syllable = first >= kSyllables && first < kSyllables + kSyllableCount &&
                             (first - kSyllables) % kTailCount == 0;
  if (open_syllable && second > kTails && second < kTails + kTailCount) {
    return first + second - kTails;
  }
  const auto found = composed_.find(PairOf(first, second));
  return found == composed_.end() ? 0 : found->second;
}

// Joins each mark to the last starter, unless one of the same class or another starter is between.
void TextNormalizer::Compose(std::vector<uint32_t>& points) const {
  size_t kept = 0, starter = points.size();
  uint8_t last_class = 0;
  for (const uint32_t point : points) {
    const uint8_t mark_class = combining_[point];
    const bool adjacent = starter + 1 == kept;
    if (starter < kept && (adjacent || last_class < mark_class)) {
      if (const uint32_t joined = Composed(points[starter], point); joined != 0) {
        points[starter] = joined;
        continue;
      }
    }
    if (mark_class == 0) starter = kept;
    last_class = mark_class;
    points[kept++] = point;
  }
  points.resize(kept);
}

}  // namespace equipoise
