#include "trainer/outputs/html_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace equipoise {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// The length in bytes of the UTF-8 character at the beginning of `text`; 0 when it is invalid.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xc2 ? 0
                        : lead < 0xe0 ? 2
                        : lead < 0xf0 ? 3
                        : lead < 0xf5 ? 4
                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
  if (lead == 0xed && byte(1) >= 0xa0) return 0;  // surrogates
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;  // beyond U+10FFFF
  return length;
}

std::string_view EscapeOf(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return "";
  }
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const auto first = static_cast<uint8_t>(text[0]);
    const bool control = first < 0x20 || first == 0x7f;
    if (length == 0 || (control && first != '\t' && first != '\n')) {
      out += kReplacement;
    } else if (const std::string_view escape = EscapeOf(text[0]); !escape.empty()) {
      out += escape;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string ReadableNumber(double value) {
  if (!std::isfinite(value)) return "not finite";
  if (std::fabs(value) < 9999.5 || std::fabs(value) >= 1e15) return fmt::format("{:.4g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  const int first = digits[0] == '-' ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace equipoise
