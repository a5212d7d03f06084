#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

namespace equipoise {

// SHA-256 (FIPS 180-4) of a text, as hexadecimal digits: what reference vectors give of long lists.
inline std::string Sha256(std::string text) {
  // The fractional parts of the square and cube roots of the first primes.
  std::array<uint32_t, 8> state{};
  std::array<uint32_t, 64> constants{};
  for (uint64_t found = 0, n = 2; found < 64; ++n) {
    bool prime = true;
    for (uint64_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    const auto fraction = [](long double root) {
      return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
    };
    constants[found] = fraction(std::cbrt(static_cast<long double>(n)));
    if (found < 8) state[found] = fraction(std::sqrt(static_cast<long double>(n)));
    ++found;
  }
  const uint64_t bits = text.size() * 8;
  text += static_cast<char>(0x80);
  while (text.size() % 64 != 56) text += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift);
  for (size_t begin = 0; begin < text.size(); begin += 64) {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 64; ++i) {
      w[i / 4] |= uint32_t{static_cast<uint8_t>(text[begin + i])} << (24 - i % 4 * 8);
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<uint32_t, 8> s = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t one = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
      const uint32_t t = s[7] + one + ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
      const uint32_t zero = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
      const uint32_t u = zero + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s = {t + u, s[0], s[1], s[2], s[3] + t, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) state[i] += s[i];
  }
  std::string digits;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[word >> shift & 15];
  }
  return digits;
}

}  // namespace equipoise
