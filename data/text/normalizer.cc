#include "data/text/normalizer.h"

#include <fmt/format.h>

#include <utility>

#include "data/text/text_error.h"
#include "data/text/utf8.h"

namespace equipoise {
namespace {

// LLaMA's makes three bytes of each space.
constexpr size_t kMostGrowth = 4, kFreeGrowth = 64 << 10;

void Strip(const NormalizerStep& step, std::string& text) {
  size_t begin = 0, end = text.size();
  while (step.left && begin < end) {
    const CodePoint point = ReadCodePoint(text, begin);
    if (!IsWhiteSpace(point.value)) break;
    begin += point.bytes;
  }
  while (step.right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (!IsWhiteSpace(ReadCodePoint(text, last).value)) break;
    end = last;
  }
  text = text.substr(begin, end - begin);
}

}  // namespace

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps, const std::string& source)
    : source_(source) {
  for (const NormalizerStep& step : steps) {
    Step& added = steps_.emplace_back();
    added.step = step;
    if (step.kind == NormalizerStep::Kind::kForm) added.form.emplace(step.form, source);
    if (step.kind == NormalizerStep::Kind::kReplaceMatches)
      added.regex.emplace(step.pattern, source);
    if (step.kind == NormalizerStep::Kind::kCharsmap) added.charsmap.emplace(step.content, source);
    if (step.kind == NormalizerStep::Kind::kMap) added.map.emplace(step.map);
  }
}

std::string Normalizer::Run(std::string_view text) const {
  const size_t most = kMostGrowth * text.size() + kFreeGrowth;
  std::string out(text);
  for (const Step& step : steps_) {
    switch (step.step.kind) {
      case NormalizerStep::Kind::kForm:
        out = step.form->Run(out);
        break;
      case NormalizerStep::Kind::kReplace:
        Replace(step.step, most, out);
        break;
      case NormalizerStep::Kind::kReplaceMatches:
        ReplaceMatches(step, most, out);
        break;
      case NormalizerStep::Kind::kStrip:
        Strip(step.step, out);
        break;
      case NormalizerStep::Kind::kCharsmap:
        out = step.charsmap->Run(out);
        break;
      case NormalizerStep::Kind::kMap:
        out = step.map->Run(out);
        break;
      case NormalizerStep::Kind::kPrepend:
        if (!out.empty()) out.insert(0, step.step.content);
        break;
    }
    CheckSize(out.size(), most);
  }
  return out;
}

void Normalizer::Replace(const NormalizerStep& step, size_t most, std::string& text) const {
  size_t at = text.find(step.pattern);
  if (at == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(step.pattern, done)) {
    out.append(text, done, at - done);
    out += step.content;
    CheckSize(out.size(), most);
    done = at + step.pattern.size();
  }
  out.append(text, done);
  text = std::move(out);
}

void Normalizer::ReplaceMatches(const Step& step, size_t most, std::string& text) const {
  std::vector<Regex::Match> matches;
  Regex::Matcher(*step.regex, text.size()).FindAll(text, matches);
  std::string out;
  size_t done = 0;
  for (const Regex::Match& match : matches) {
    out.append(text, done, match.begin - done);
    out += step.step.content;
    CheckSize(out.size(), most);
    done = match.end;
  }
  out.append(text, done);
  text = std::move(out);
}

void Normalizer::CheckSize(size_t bytes, size_t most) const {
  if (bytes <= most) return;
  throw TextError(
      fmt::format("{}: makes more than {} times as much of a text", source_, kMostGrowth));
}

}  // namespace equipoise
