#include "configs/base/shown_text.h"

#include <fmt/format.h>

#include <cstdint>

namespace equipoise {
namespace {

// The code point of a well-formed sequence of two or three bytes.
uint32_t CodePointOf(std::string_view sequence) {
  uint32_t value = static_cast<uint8_t>(sequence[0]) & (sequence.size() == 2 ? 0x1F : 0x0F);
  for (const char byte : sequence.substr(1))
    value = value << 6 | (static_cast<uint8_t>(byte) & 0x3F);
  return value;
}

// C1 controls, line separators, and marks that hide text or change its direction.
bool IsInvisible(uint32_t c) {
  return (c >= 0x80 && c <= 0x9F) || (c >= 0x200E && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

// Appends the escape of the bytes of one sequence, or the sequence as it is.
void AppendShown(std::string_view sequence, bool lines, std::string& out) {
  const char c = sequence[0];
  if (c == '\n' || c == '\t' || c == '\r') {
    if (lines && c != '\r') {
      out += c;
    } else {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    }
  } else if ((sequence.size() == 2 || sequence.size() == 3) && IsInvisible(CodePointOf(sequence))) {
    out += fmt::format("\\u{:04x}", CodePointOf(sequence));
  } else {
    out += sequence;
  }
}

std::string Shown(std::string_view text, bool lines, size_t most) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= most) return out + "...";
    const size_t length = SequenceLength(text);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
      text.remove_prefix(1);
    } else {
      AppendShown(text.substr(0, length), lines, out);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace

std::string ShownText(std::string_view text, size_t most) { return Shown(text, false, most); }

std::string TerminalText(std::string_view text) { return Shown(text, true, std::string::npos); }

std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,:@%=";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(text);
  std::string word = "'";
  for (const char byte : text) {
    if (byte == '\'') {
      word += "'\\''";
    } else {
      word += byte;
    }
  }
  return word + "'";
}

size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    const bool control =
        (lead < 0x20 && lead != '\t' && lead != '\n' && lead != '\r') || lead == 0x7f;
    return control ? 0 : 1;
  }
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool outside = (lead == 0xed && byte(1) > 0x9f) || (lead == 0xf4 && byte(1) > 0x8f);
  return overlong || outside ? 0 : length;
}

}  // namespace equipoise
