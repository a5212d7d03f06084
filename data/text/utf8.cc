#include "data/text/utf8.h"

namespace equipoise {
namespace {

// The bytes that may follow a leading byte: their number, and the range of the first (which
// excludes overlong forms, surrogates and values above U+10FFFF).
struct Lead {
  uint32_t following;
  uint8_t low, high;
};

Lead ReadLead(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

CodePoint ReadCodePoint(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(position);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = ReadLead(first);
  if (lead.following == 0) return {0, 1, false};
  uint32_t value = first & (0x3F >> lead.following);
  for (uint32_t i = 1; i <= lead.following; ++i) {
    if (position + i >= text.size()) return {0, i, false};
    const uint8_t next = byte(position + i);
    if (next < (i == 1 ? lead.low : 0x80) || next > (i == 1 ? lead.high : 0xBF))
      return {0, i, false};
    value = value << 6 | (next & 0x3F);
  }
  return {value, lead.following + 1, true};
}

void AppendCodePoint(std::string& text, uint32_t c) {
  const auto add = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
  }
  add(0x80 | (c & 0x3F));
}

bool IsValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const CodePoint point = ReadCodePoint(text, i);
    if (!point.valid) return false;
    i += point.bytes;
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = ReadCodePoint(text, i);
    if (point.valid) {
      out.append(text.substr(i, point.bytes));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    i += point.bytes;
  }
  return out;
}

bool IsWhiteSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace equipoise
