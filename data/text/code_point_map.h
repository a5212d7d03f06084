#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/text/code_points.h"

namespace equipoise {

// A change of text code point by code point, by tables of our own (unicode_tables.h). Immutable, so
// threads share it.
class CodePointMap {
 public:
  enum class Kind : uint8_t {
    kLowercase,     // to lower case, whatever stands around: a final sigma is no case of its own
    kStripAccents,  // combining marks are removed
    // The steps of BertNormalizer.
    kBertClean,  // control characters are removed; white space becomes a space
    kBertSpace,  // Chinese characters have a space on each side
    kBertStrip,  // marks that take no space are removed; REQUIRES: text in NFD
  };
  explicit CodePointMap(Kind kind);

  // Returns `text` (valid UTF-8) changed; at most twice its bytes.
  std::string Run(std::string_view text) const;

 private:
  CodePointTable change_;                                // a Change of code_point_map.cc
  std::unordered_map<uint32_t, std::string> lowercase_;  // of those that it changes
};

}  // namespace equipoise
