#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/bpe.h"
#include "data/text/piece_trie.h"

namespace equipoise {

// BERT's WordPiece (arXiv 1810.04805, 1609.08144): a word is cut from left to right, each time by
// the longest piece that fits. Immutable once built, so thread-safe.
class WordPieceModel {
 public:
  struct Options {
    int32_t unknown = -1;            // id of a word that the pieces do not cover
    std::string prefix = "##";       // before pieces that do not begin a word
    uint64_t most_characters = 100;  // a longer word is unknown
  };

  // REQUIRES: options.unknown is an id of the vocabulary.
  WordPieceModel(const Vocabulary& vocabulary, Options options);

  // Appends the ids of a word (valid UTF-8) of any length, in O(bytes * longest piece); one id, the
  // unknown one, where the pieces do not cover all of it.
  void Encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  Options options_;
  PieceTrie pieces_;
  uint32_t inside_;  // the node behind the prefix
};

}  // namespace equipoise
