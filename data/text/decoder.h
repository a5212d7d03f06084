#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

// One step of the decoder of a tokenizer.json: a list of tokens' texts becomes another list.
struct DecoderStep {
  enum class Kind : uint8_t {
    kReplace,       // `content` in place of each `pattern` of a token
    kByteFallback,  // tokens <0x00> to <0xFF> in a row become their text, or each U+FFFD
    kFuse,          // all tokens become one
    kStrip,         // up to `count` times `content`, one character, is cut off a token's beginning
    kMetaspace,     // `pattern` becomes a space; in the first token nothing where `count` > 0
    // WordPiece's: `pattern` is cut off a token's beginning, or it gets a space before it; not the
    // first token. With `count` > 0 spaces around punctuation of English are taken out then.
    kWordPiece,
  };
  Kind kind = Kind::kFuse;
  std::string pattern, content;
  int64_t count = 0;
};

// The text of `tokens` after all steps.
std::string DecodeTokens(std::vector<std::string> tokens, const std::vector<DecoderStep>& steps);

// Replaces each `pattern`, which is not empty, from left to right.
std::string ReplaceAll(std::string text, const std::string& pattern, const std::string& content);

}  // namespace equipoise
