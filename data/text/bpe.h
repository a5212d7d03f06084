#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/byte_alphabet.h"

namespace equipoise {

using Vocabulary = std::unordered_map<std::string, int32_t>;

// Byte-pair encoding of one word. Immutable once built, so thread-safe.
class BpeModel {
 public:
  // `left` and `right` become `merged`; merges of lower rank come first.
  struct Merge {
    int32_t left, right, merged;
  };

  struct Options {
    // A word that is a token as a whole is not merged up from its bytes.
    bool ignore_merges = false;
    // Id of a byte that the vocabulary lacks; -1 = such a byte is dropped.
    int32_t unknown = -1;
    bool fuse_unknown = false;
  };

  // `vocabulary` is in the byte alphabet and must outlive this object. The rank of a merge is its
  // place in the list; of equal pairs the last one counts.
  BpeModel(const Vocabulary* vocabulary, const std::vector<Merge>& merges, const Options& options);

  // Appends the ids of a word of any length, in O(n log n).
  void Encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Target {
    uint32_t rank;
    int32_t merged;
  };
  class Word;

  const Vocabulary* vocabulary_;
  ByteAlphabet alphabet_;
  Options options_;
  std::array<int32_t, 256> byte_ids_;
  std::unordered_map<uint64_t, Target> merges_;  // (left << 32 | right)
};

}  // namespace equipoise
