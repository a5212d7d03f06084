#include "configs/base/base64.h"

#include <array>
#include <cstdint>

namespace equipoise {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 255;

// The value of each character as a digit.
constexpr std::array<uint8_t, 256> MakeValues() {
  std::array<uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
  return values;
}
constexpr std::array<uint8_t, 256> kValues = MakeValues();

}  // namespace

std::string Base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      const bool is_digit = i + k <= bytes.size();
      out.push_back(is_digit ? kDigits[group >> (18 - 6 * k) & 63] : '=');
    }
  }
  return out;
}

std::optional<std::string> FromBase64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t group = 0;
  size_t digits = 0, padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const uint8_t value = kValues[static_cast<uint8_t>(c)];
    if (value == kNoDigit || padding > 0) return std::nullopt;
    group = group << 6 | value;
    if (++digits % 4 != 0) continue;
    for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(group >> shift & 255));
    group = 0;
  }
  const size_t rest = digits % 4;
  if (rest == 1 || padding > 2 || (padding > 0 && rest + padding != 4)) return std::nullopt;
  if (rest >= 2) bytes.push_back(static_cast<char>(group >> (6 * rest - 8) & 255));
  if (rest == 3) bytes.push_back(static_cast<char>(group >> 2 & 255));
  return bytes;
}

}  // namespace equipoise
