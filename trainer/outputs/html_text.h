#pragma once

#include <string>
#include <string_view>

namespace equipoise {

// `text` as it may stand in HTML and in quoted attributes: markup escaped, bytes that are no UTF-8
// and control characters (but tab and newline) replaced by U+FFFD.
std::string EscapeHtml(std::string_view text);

// Base64 of RFC 4648, with padding.
std::string Base64(std::string_view bytes);

// A number for people: 4 significant digits, thousands as "12,345".
std::string ReadableNumber(double value);

}  // namespace equipoise
