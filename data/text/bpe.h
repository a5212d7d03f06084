#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/bpe_cuts.h"
#include "data/text/byte_alphabet.h"
#include "data/text/merge_table.h"
#include "data/text/utf8.h"

namespace equipoise {

using Vocabulary = std::unordered_map<std::string, int32_t>;

// Byte-pair encoding of one word. Immutable once built, so thread-safe.
class BpeModel {
 public:
  using Merge = BpeMerge;  // those of lower rank come first

  struct Options {
    // A word that is a token as a whole is not merged up from its bytes or characters.
    bool ignore_merges = false;
    // Id of a byte or character that the vocabulary lacks; -1 = it is dropped.
    int32_t unknown = -1;
    bool fuse_unknown = false;
    // Words are merged up from their characters, as SentencePiece does it, and not from their
    // bytes; a character that the vocabulary lacks becomes the tokens <0x00> to <0xFF> of its
    // bytes where it has them all.
    bool byte_fallback = false;
  };

  // `vocabulary` is in the byte alphabet, or in plain text with `byte_fallback`, and must outlive
  // this object. The rank of a merge is its place in the list; of equal pairs the last one counts.
  BpeModel(const Vocabulary* vocabulary, const std::vector<Merge>& merges, const Options& options);

  // Appends the ids of a word of any length, in O(n log n).
  void Encode(std::string_view word, std::vector<int32_t>& ids) const;

  // End of the piece of `word` that begins at `begin`, the word's beginning or the end of another:
  // the ids of a word, which is valid UTF-8, are those of its pieces.
  size_t PieceEnd(std::string_view word, size_t begin) const {
    return cuts_ ? cuts_->PieceEnd(word, begin) : word.size();
  }

 private:
  void FindCuts(const std::vector<Merge>& merges);

  std::vector<int32_t> BytesOf(std::string_view word) const;
  std::vector<int32_t> CharactersOf(std::string_view word) const;
  int32_t IdOf(const CodePoint& character) const;  // -1: not in the vocabulary
  // Appends the tokens of a character's bytes; false, and nothing, where one is missing.
  bool AppendBytes(std::string_view character, std::vector<int32_t>& symbols) const;

  const Vocabulary* vocabulary_;
  ByteAlphabet alphabet_;
  Options options_;
  std::array<int32_t, 256> byte_ids_;  // of each byte's character, or of <0x00> to <0xFF>; -1: none
  // With byte fallback: the ids of the vocabulary's characters by their code points; -1: none.
  std::array<int32_t, 128> ascii_ids_;
  std::unordered_map<uint32_t, int32_t> character_ids_;  // above ASCII
  MergeTable merges_;
  std::optional<BpeCuts> cuts_;  // none: a word is one piece
};

}  // namespace equipoise
