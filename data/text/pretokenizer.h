#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/regex.h"

namespace equipoise {

// Treatment of the matches of a pattern, as in the `tokenizers` library.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// One step that cuts text into pieces.
struct SplitStep {
  std::string pattern;  // as tokenizer.json has it
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the pattern describes the gaps between matches
};

// The pre-tokenizer of a tokenizer.json.
struct PreTokenizerSpec {
  std::vector<SplitStep> steps;
  // The final ByteLevel step: give each piece a leading space where it has none, then cut by
  // GPT-2's pattern.
  bool add_prefix_space = false;
  bool gpt2_split = false;
};

// Cuts text into the words that BPE works on: patterns one after the other, each applied to the
// pieces of the one before. Thread-safe.
class PreTokenizer {
 public:
  // Throws DataError that begins with `source:` for a pattern that is not supported.
  PreTokenizer(const PreTokenizerSpec& spec, const std::string& source);

  // Calls `word` for each word of `text` (valid UTF-8); the view holds during the call. Throws
  // TextError when a pattern exceeds its limits.
  void Split(std::string_view text, const std::function<void(std::string_view)>& word) const;

 private:
  struct Step {
    Regex regex;
    SplitBehavior behavior;
    bool invert;
  };
  class Run;
  std::vector<Step> steps_;
  bool add_prefix_space_;
  size_t prefix_at_;  // the step before which the space is added
};

}  // namespace equipoise
