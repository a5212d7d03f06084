#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/charsmap.h"
#include "data/text/code_point_map.h"
#include "data/text/regex.h"
#include "data/text/text_normalizer.h"

namespace equipoise {

// One step of a tokenizer.json's normalizer.
struct NormalizerStep {
  enum class Kind : uint8_t {
    kForm,            // to a normal form of Unicode
    kPrepend,         // `content` before a text that is not empty
    kReplace,         // `content` in place of each `pattern`, a literal text
    kReplaceMatches,  // the same of a regular expression
    kStrip,           // white space is cut off the beginning (`left`) and the end (`right`)
    kCharsmap,        // by SentencePiece's compiled table, the bytes in `content`
    kMap,             // code point by code point, by `map`
  };
  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  CodePointMap::Kind map = CodePointMap::Kind::kLowercase;
  std::string pattern, content;
  bool left = false, right = false;
};

// Normalizer of text by steps, one after the other. Immutable, so threads share it.
class Normalizer {
 public:
  // Without steps, text is left unchanged. `source` begins messages.
  Normalizer(const std::vector<NormalizerStep>& steps, const std::string& source);

  // Returns `text` (valid UTF-8) normalized. Throws TextError where a step makes more than four
  // times the text and 64 KiB.
  std::string Run(std::string_view text) const;

 private:
  struct Step {
    NormalizerStep step;
    std::optional<TextNormalizer> form;
    std::optional<Regex> regex;
    std::optional<Charsmap> charsmap;
    std::optional<CodePointMap> map;
  };
  void Replace(const NormalizerStep& step, size_t most, std::string& text) const;
  void ReplaceMatches(const Step& step, size_t most, std::string& text) const;
  void CheckSize(size_t bytes, size_t most) const;

  std::vector<Step> steps_;
  std::string source_;
};

}  // namespace equipoise
