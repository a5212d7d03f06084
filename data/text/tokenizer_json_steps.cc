#include "data/text/tokenizer_json_steps.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms = {{
    {"NFC", NormalForm::kNfc},
    {"NFD", NormalForm::kNfd},
    {"NFKC", NormalForm::kNfkc},
    {"NFKD", NormalForm::kNfkd},
}};

constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {{
    {"Isolated", SplitBehavior::kIsolated},
    {"Removed", SplitBehavior::kRemoved},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext},
    {"Contiguous", SplitBehavior::kContiguous},
}};

std::string TypeOf(const Json& step, const std::string& source) {
  if (!step.is_object()) throw DataError(source + ": is no object");
  return GetString(step, "type", source);
}

const Json& ListOf(const Json& step, const char* key, const std::string& source) {
  const auto list = step.find(key);
  if (list == step.end() || !list->is_array()) {
    throw DataError(fmt::format("{}: {} is missing or no list", source, key));
  }
  return *list;
}

// Published tokenizers have up to five steps; each costs a walk over the text.
void CheckSteps(const Json& steps, const std::string& source) {
  constexpr size_t kMostSteps = 32;
  if (steps.size() <= kMostSteps) return;
  throw DataError(fmt::format("{}: a sequence of {} steps; at most {} are read", source,
                              steps.size(), kMostSteps));
}

// The normal form that two forms, one after the other, amount to: a form undoes the composition of
// the one before, and compatible characters, once replaced, stay replaced.
std::optional<NormalForm> Combined(std::optional<NormalForm> first,
                                   std::optional<NormalForm> second) {
  if (!first || !second) return first ? first : second;
  const auto compatible = [](NormalForm form) {
    return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  };
  if (!compatible(*first) || compatible(*second)) return second;
  return second == NormalForm::kNfc ? NormalForm::kNfkc : NormalForm::kNfkd;
}

// The pattern that matches a text literally.
std::string Escape(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (c > 0x20 && c < 0x7F &&
        std::string_view("_-'\"<>/ ,;:!@%~`=&#").find(c) == std::string_view::npos &&
        !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
      pattern += '\\';
    }
    pattern += c;
  }
  return pattern;
}

SplitStep ReadSplit(const Json& step, const std::string& source) {
  SplitStep split;
  const auto pattern = step.find("pattern");
  if (pattern == step.end() || !pattern->is_object())
    throw DataError(source + ": pattern is missing");
  split.pattern = pattern->contains("String") ? Escape(GetString(*pattern, "String", source))
                                              : GetString(*pattern, "Regex", source);
  if (split.pattern.empty()) throw DataError(source + ": pattern is empty");
  const std::string behavior = GetString(step, "behavior", source);
  for (const auto& [name, value] : kBehaviors) {
    if (name != behavior) continue;
    split.behavior = value;
    split.invert = GetBool(step, "invert", source, false);
    return split;
  }
  throw DataError(fmt::format("{}: behavior '{}' is not known", source, behavior));
}

void ReadStep(const Json& step, const std::string& source, bool last, PreTokenizerSpec& spec) {
  const std::string type = TypeOf(step, source);
  if (type == "ByteLevel") {
    if (!last) throw DataError(source + ": ByteLevel must be the last step");
    spec.add_prefix_space = GetBool(step, "add_prefix_space", source, true);
    spec.gpt2_split = GetBool(step, "use_regex", source, true);
  } else if (last) {
    throw DataError(
        fmt::format("{}: the last step is '{}'; only byte-level BPE is supported, which ends "
                    "with ByteLevel",
                    source, type));
  } else if (type == "Split") {
    spec.steps.push_back(ReadSplit(step, source));
  } else if (type == "Digits") {
    const bool single = GetBool(step, "individual_digits", source, false);
    spec.steps.push_back(
        {"\\p{numeric}", single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
  } else {
    throw DataError(fmt::format(
        "{}: pre-tokenizer '{}' is not supported; supported are Split, Digits and ByteLevel",
        source, type));
  }
}

}  // namespace

std::optional<NormalForm> ReadNormalizer(const Json& normalizer, const std::string& source) {
  if (normalizer.is_null()) return std::nullopt;
  const std::string type = TypeOf(normalizer, source);
  for (const auto& [name, form] : kForms) {
    if (type == name) return form;
  }
  if (type != "Sequence") {
    throw DataError(
        fmt::format("{}: '{}' is not supported; supported are NFC, NFD, NFKC, NFKD", source, type));
  }
  const Json& steps = ListOf(normalizer, "normalizers", source);
  CheckSteps(steps, source);
  std::optional<NormalForm> form;
  for (const Json& step : steps) form = Combined(form, ReadNormalizer(step, source));
  return form;
}

PreTokenizerSpec ReadPreTokenizer(const Json& pre_tokenizer, const std::string& source) {
  if (pre_tokenizer.is_null()) {
    throw DataError(source +
                    ": there is none; only byte-level BPE is supported, which has ByteLevel");
  }
  PreTokenizerSpec spec;
  if (TypeOf(pre_tokenizer, source) != "Sequence") {
    ReadStep(pre_tokenizer, source, /*last=*/true, spec);
    return spec;
  }
  const Json& steps = ListOf(pre_tokenizer, "pretokenizers", source);
  if (steps.empty()) throw DataError(source + ": the sequence is empty");
  CheckSteps(steps, source);
  for (size_t i = 0; i < steps.size(); ++i) {
    ReadStep(steps[i], fmt::format("{}[{}]", source, i), i + 1 == steps.size(), spec);
  }
  return spec;
}

void CheckDecoder(const Json& decoder, const std::string& source) {
  if (decoder.is_null()) return;
  const std::string type = TypeOf(decoder, source);
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    const Json& steps = ListOf(decoder, "decoders", source);
    CheckSteps(steps, source);
    for (const Json& step : steps) CheckDecoder(step, source);
    return;
  }
  throw DataError(fmt::format("{}: '{}' is not supported; only ByteLevel is", source, type));
}

}  // namespace equipoise
