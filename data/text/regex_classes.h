#pragma once

#include <string>
#include <string_view>

#include "data/text/code_points.h"

namespace equipoise {

// A pattern over bytes in PCRE2's syntax, and the byte of each code point: code points that no part
// of the pattern distinguishes share one.
struct BytePattern {
  std::string pattern;
  CodePointTable byte_of;
};

// Rewrites `pattern`, with the meaning that Oniguruma gives it. Throws DataError that begins with
// `source:` for constructs that have no safe equivalent.
BytePattern TranslatePattern(std::string_view pattern, const std::string& source);

}  // namespace equipoise
