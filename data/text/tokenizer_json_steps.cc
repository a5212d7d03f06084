#include "data/text/tokenizer_json_steps.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "configs/base/base64.h"
#include "configs/base/error.h"
#include "data/text/utf8.h"

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
NormalForm Combined(NormalForm first, NormalForm second) {
  const auto compatible = [](NormalForm form) {
    return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  };
  if (!compatible(first) || compatible(second)) return second;
  return second == NormalForm::kNfc ? NormalForm::kNfkc : NormalForm::kNfkd;
}

// The literal text that a Replace step looks for.
std::string LiteralPattern(const Json& step, const std::string& source) {
  const auto pattern = step.find("pattern");
  if (pattern == step.end() || !pattern->is_object() || !pattern->contains("String")) {
    throw DataError(source + ": Replace: only a literal pattern, {\"String\": ...}, is supported");
  }
  std::string text = GetString(*pattern, "String", source);
  if (text.empty()) throw DataError(source + ": Replace: pattern is empty");
  return text;
}

NormalizerStep ReadNormalizerStep(const Json& step, const std::string& type,
                                  const std::string& source) {
  NormalizerStep read;
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    read.form = form;
    return read;
  }
  if (type == "Prepend") {
    read.kind = NormalizerStep::Kind::kPrepend;
    read.content = GetString(step, "prepend", source);
  } else if (type == "Replace") {
    const auto pattern = step.find("pattern");
    const bool regex = pattern != step.end() && pattern->is_object() && pattern->contains("Regex");
    read.kind = regex ? NormalizerStep::Kind::kReplaceMatches : NormalizerStep::Kind::kReplace;
    read.pattern = regex ? GetString(*pattern, "Regex", source) : LiteralPattern(step, source);
    read.content = GetString(step, "content", source);
  } else if (type == "Strip") {
    read.kind = NormalizerStep::Kind::kStrip;
    read.left = GetBool(step, "strip_left", source, true);
    read.right = GetBool(step, "strip_right", source, true);
  } else if (type == "Precompiled") {
    read.kind = NormalizerStep::Kind::kCharsmap;
    const auto bytes = FromBase64(GetString(step, "precompiled_charsmap", source));
    if (!bytes) throw DataError(source + ": precompiled_charsmap is not Base64");
    read.content = *bytes;
  } else if (type == "Lowercase" || type == "StripAccents") {
    read.kind = NormalizerStep::Kind::kMap;
    read.map =
        type == "Lowercase" ? CodePointMap::Kind::kLowercase : CodePointMap::Kind::kStripAccents;
  } else {
    throw DataError(
        fmt::format("{}: '{}' is not supported; supported are NFC, NFD, NFKC, NFKD, Prepend, "
                    "Replace, Strip, Precompiled, Lowercase, StripAccents and BertNormalizer",
                    source, type));
  }
  return read;
}

std::vector<NormalizerStep> ReadBertNormalizer(const Json& step, const std::string& source) {
  const bool lowercase = GetBool(step, "lowercase", source);
  std::vector<NormalizerStep> all;
  const auto add = [&](CodePointMap::Kind map) {
    NormalizerStep& added = all.emplace_back();
    added.kind = NormalizerStep::Kind::kMap;
    added.map = map;
  };
  if (GetBool(step, "clean_text", source)) add(CodePointMap::Kind::kBertClean);
  if (GetBool(step, "handle_chinese_chars", source)) add(CodePointMap::Kind::kBertSpace);
  if (GetBool(step, "strip_accents", source, lowercase)) {
    all.emplace_back().form = NormalForm::kNfd;
    add(CodePointMap::Kind::kBertStrip);
  }
  if (lowercase) add(CodePointMap::Kind::kLowercase);
  return all;
}

// The replacement of a Metaspace step.
std::string ReplacementOf(const Json& step, const std::string& source) {
  std::string replacement = GetString(step, "replacement", source, Metaspace().replacement);
  const bool one =
      !replacement.empty() && ReadCodePoint(replacement, 0).bytes == replacement.size();
  if (!one) throw DataError(source + ": Metaspace: replacement is not one character");
  return replacement;
}

Metaspace::Prepend PrependOf(const Json& step, const std::string& source) {
  if (!step.contains("prepend_scheme") && !GetBool(step, "add_prefix_space", source, true)) {
    return Metaspace::Prepend::kNever;
  }
  const std::string scheme = GetString(step, "prepend_scheme", source, "always");
  if (scheme == "always") return Metaspace::Prepend::kAlways;
  if (scheme == "first") return Metaspace::Prepend::kFirst;
  if (scheme == "never") return Metaspace::Prepend::kNever;
  throw DataError(fmt::format("{}: Metaspace: prepend_scheme '{}' is not known", source, scheme));
}

DecoderStep ReadStrip(const Json& step, const std::string& source) {
  DecoderStep read;
  read.kind = DecoderStep::Kind::kStrip;
  read.content = GetString(step, "content", source);
  read.count = GetInt(step, "start", source);
  if (read.content.empty() || read.count < 0 || GetInt(step, "stop", source) != 0) {
    throw DataError(source + ": Strip: only a character at the beginning is supported (stop: 0)");
  }
  return read;
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

std::vector<NormalizerStep> ReadNormalizer(const Json& normalizer, const std::string& source) {
  if (normalizer.is_null()) return {};
  const std::string type = TypeOf(normalizer, source);
  if (type == "BertNormalizer") return ReadBertNormalizer(normalizer, source);
  if (type != "Sequence") return {ReadNormalizerStep(normalizer, type, source)};
  const Json& steps = ListOf(normalizer, "normalizers", source);
  CheckSteps(steps, source);
  std::vector<NormalizerStep> all;
  for (const Json& step : steps) {
    for (const NormalizerStep& next : ReadNormalizer(step, source)) {
      constexpr auto kForm = NormalizerStep::Kind::kForm;
      if (!all.empty() && all.back().kind == kForm && next.kind == kForm) {
        all.back().form = Combined(all.back().form, next.form);
      } else {
        all.push_back(next);
      }
    }
  }
  return all;
}

std::string ReadTemplateBegin(const Json& post_processor, const std::string& source) {
  if (!post_processor.is_object()) return "";
  const std::string type = TypeOf(post_processor, source);
  if (type == "Sequence") {
    const Json& steps = ListOf(post_processor, "processors", source);
    CheckSteps(steps, source);
    for (const Json& step : steps) {
      std::string token = ReadTemplateBegin(step, source);
      if (!token.empty()) return token;
    }
    return "";
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const Json& begin = ListOf(post_processor, "cls", source);
    if (begin.empty() || !begin[0].is_string()) throw DataError(source + ": cls is no token");
    return begin[0].get<std::string>();
  }
  if (type != "TemplateProcessing") return "";
  const Json& single = ListOf(post_processor, "single", source);
  if (single.empty() || !single[0].is_object() || !single[0].contains("SpecialToken")) return "";
  const Json& first = single[0]["SpecialToken"];
  if (!first.is_object()) throw DataError(source + ": SpecialToken is no object");
  return GetString(first, "id", source);
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

std::optional<Metaspace> ReadMetaspace(const Json& pre_tokenizer, const std::string& source) {
  if (pre_tokenizer.is_null()) return std::nullopt;
  const std::string type = TypeOf(pre_tokenizer, source);
  if (type != "Metaspace") {
    throw DataError(fmt::format(
        "{}: '{}' is not supported with model.byte_fallback; supported are none and Metaspace",
        source, type));
  }
  return Metaspace{ReplacementOf(pre_tokenizer, source), PrependOf(pre_tokenizer, source),
                   GetBool(pre_tokenizer, "split", source, true)};
}

std::optional<Metaspace> ReadUnigramSteps(const Json& pre_tokenizer, const std::string& source,
                                          PreTokenizerSpec& spec) {
  if (pre_tokenizer.is_null()) return std::nullopt;
  const std::string type = TypeOf(pre_tokenizer, source);
  const Json one = Json::array({pre_tokenizer});
  const Json& steps = type == "Sequence" ? ListOf(pre_tokenizer, "pretokenizers", source) : one;
  CheckSteps(steps, source);
  std::optional<Metaspace> metaspace;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", source, i), kind = TypeOf(steps[i], at);
    if (metaspace) throw DataError(at + ": Metaspace must be the last step");
    if (kind == "Metaspace") {
      metaspace = ReadMetaspace(steps[i], at);
    } else if (kind == "WhitespaceSplit") {
      spec.steps.push_back({"\\s+", SplitBehavior::kRemoved, false});
    } else {
      ReadStep(steps[i], at, /*last=*/false, spec);
    }
  }
  return metaspace;
}

PreTokenizerSpec ReadWordPieceSteps(const Json& pre_tokenizer, const std::string& source) {
  PreTokenizerSpec spec;
  if (pre_tokenizer.is_null()) return spec;
  const bool many = TypeOf(pre_tokenizer, source) == "Sequence";
  const Json one = Json::array({pre_tokenizer});
  const Json& steps = many ? ListOf(pre_tokenizer, "pretokenizers", source) : one;
  CheckSteps(steps, source);
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string at = many ? fmt::format("{}[{}]", source, i) : source;
    const std::string kind = TypeOf(steps[i], at);
    if (kind == "BertPreTokenizer" || kind == "WhitespaceSplit") {
      spec.steps.push_back({"\\s+", SplitBehavior::kRemoved, false});
      if (kind == "WhitespaceSplit") continue;
      spec.steps.push_back({"\\p{bert_punctuation}", SplitBehavior::kIsolated, false});
    } else if (kind == "Split" || kind == "Digits") {
      ReadStep(steps[i], at, /*last=*/false, spec);
    } else {
      throw DataError(
          fmt::format("{}: pre-tokenizer '{}' is not supported with WordPiece; supported are "
                      "BertPreTokenizer, WhitespaceSplit, Split and Digits",
                      at, kind));
    }
  }
  return spec;
}

std::vector<DecoderStep> ReadDecoder(const Json& decoder, const std::string& source) {
  if (decoder.is_null()) {
    throw DataError(source + ": there is none; only byte-level BPE does without one");
  }
  const std::string type = TypeOf(decoder, source);
  DecoderStep read;
  if (type == "Sequence") {
    const Json& steps = ListOf(decoder, "decoders", source);
    CheckSteps(steps, source);
    std::vector<DecoderStep> all;
    for (const Json& step : steps) {
      for (DecoderStep& next : ReadDecoder(step, source)) all.push_back(std::move(next));
    }
    return all;
  }
  if (type == "Replace") {
    read.kind = DecoderStep::Kind::kReplace;
    read.pattern = LiteralPattern(decoder, source);
    read.content = GetString(decoder, "content", source);
  } else if (type == "ByteFallback") {
    read.kind = DecoderStep::Kind::kByteFallback;
  } else if (type == "Strip") {
    read = ReadStrip(decoder, source);
  } else if (type == "Metaspace") {
    read.kind = DecoderStep::Kind::kMetaspace;
    read.pattern = ReplacementOf(decoder, source);
    read.count = PrependOf(decoder, source) == Metaspace::Prepend::kNever ? 0 : 1;
  } else if (type == "WordPiece") {
    read.kind = DecoderStep::Kind::kWordPiece;
    read.pattern = GetString(decoder, "prefix", source);
    read.count = GetBool(decoder, "cleanup", source) ? 1 : 0;
  } else if (type != "Fuse") {
    throw DataError(
        fmt::format("{}: '{}' is not supported; supported are Replace, ByteFallback, Fuse, Strip, "
                    "Metaspace and WordPiece",
                    source, type));
  }
  return {read};
}

}  // namespace equipoise
