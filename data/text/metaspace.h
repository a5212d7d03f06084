#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace equipoise {

// The pre-tokenizer of SentencePiece's BPE: spaces become a visible character, one more of which is
// put before the text.
struct Metaspace {
  enum class Prepend : uint8_t {
    kNever,
    kFirst,   // before a part of the text that begins it, and not behind an added token
    kAlways,  // before each part
  };
  std::string replacement = "\xE2\x96\x81";  // U+2581
  Prepend prepend = Prepend::kAlways;
  bool split = true;  // words begin at each replacement; else the whole part is one word

  // Calls `word` for each word of a part of a text; `first`: the part begins the text.
  void Split(std::string_view part, bool first,
             const std::function<void(std::string_view)>& word) const;
};

}  // namespace equipoise
