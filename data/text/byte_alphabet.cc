#include "data/text/byte_alphabet.h"

#include "data/text/utf8.h"

namespace equipoise {

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const uint32_t character = printable ? byte : next++;
    AppendCodePoint(characters_[byte], character);
    bytes_[character] = static_cast<int16_t>(byte);
  }
}

std::string ByteAlphabet::ToText(std::string_view bytes) const {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes) text += characters_[static_cast<uint8_t>(byte)];
  return text;
}

std::optional<std::string> ByteAlphabet::ToBytes(std::string_view text) const {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = ReadCodePoint(text, i);
    if (!point.valid || point.value >= kEnd || bytes_[point.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(bytes_[point.value]));
    i += point.bytes;
  }
  return bytes;
}

}  // namespace equipoise
