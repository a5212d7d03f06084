#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace equipoise {

// One code point read from a text.
struct CodePoint {
  uint32_t value = 0;
  uint32_t bytes = 0;  // its length; for an invalid sequence that of its maximal valid prefix
  bool valid = false;
};

// Reads the code point at `position`. REQUIRES: position < text.size().
CodePoint ReadCodePoint(std::string_view text, size_t position);
void AppendCodePoint(std::string& text, uint32_t code_point);

bool IsValidUtf8(std::string_view text);
// Each maximal part of an invalid sequence becomes one U+FFFD, as in Python's and Rust's decoders.
std::string ReplaceInvalidUtf8(std::string_view text);

// True for code points of Unicode's White_Space property.
bool IsWhiteSpace(uint32_t code_point);

}  // namespace equipoise
