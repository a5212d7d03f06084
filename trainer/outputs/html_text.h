#pragma once

#include <string>
#include <string_view>

namespace equipoise {

// Escapes a text for HTML and quoted attributes. Invalid UTF-8 and control characters (except tab
// and newline) are replaced by U+FFFD.
std::string EscapeHtml(std::string_view text);

// A number in readable form: 4 significant digits, or whole with separators as in "12,345".
std::string ReadableNumber(double value);

}  // namespace equipoise
