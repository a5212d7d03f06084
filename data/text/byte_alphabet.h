#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace equipoise {

// GPT-2's alphabet: every byte has a printable character, so that a vocabulary of byte strings can
// be written as JSON text. The 188 printable bytes of Latin-1 map to themselves, the others to
// U+0100, U+0101, ... in ascending order.
class ByteAlphabet {
 public:
  ByteAlphabet();
  // The character of a byte, as UTF-8.
  const std::string& character(uint8_t byte) const { return characters_[byte]; }
  // Bytes as text of the alphabet.
  std::string ToText(std::string_view bytes) const;
  // Text of the alphabet as bytes; nullopt when it holds any other character.
  std::optional<std::string> ToBytes(std::string_view text) const;

 private:
  static constexpr uint32_t kEnd = 0x144;  // after the last character used
  std::array<std::string, 256> characters_;
  std::array<int16_t, kEnd> bytes_;  // of a character; -1 = none
};

}  // namespace equipoise
