#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "balance/load/random.h"

namespace equipoise {

// A random permutation of the numbers 0 to size - 1 that is computed entry by entry and needs no
// memory: a Feistel network over the next power of four, with cycle walking back into the range
// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). Not cryptographic.
class Permutation {
 public:
  Permutation(int64_t size, SplitMix random) : size_(static_cast<uint64_t>(size)) {
    while (half_bits_ < 31 && uint64_t{1} << 2 * half_bits_ < size_) ++half_bits_;
    for (uint64_t& key : keys_) key = random.Next();
  }

  // REQUIRES: 0 <= place < size.
  int64_t operator()(int64_t place) const {
    uint64_t number = static_cast<uint64_t>(place);
    do {
      number = Mixed(number);
    } while (number >= size_);
    return static_cast<int64_t>(number);
  }

 private:
  uint64_t Mixed(uint64_t number) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = number >> half_bits_, right = number & mask;
    for (const uint64_t key : keys_) {
      left ^= SplitMix(right ^ key).Next() & mask;
      std::swap(left, right);
    }
    return left << half_bits_ | right;
  }

  uint64_t size_;
  int half_bits_ = 1;
  std::array<uint64_t, 6> keys_ = {};
};

}  // namespace equipoise
