#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/bpe.h"
#include "data/text/piece_trie.h"

namespace equipoise {

// SentencePiece's unigram model (arXiv 1808.06226, 1804.10959): the cut of a word into pieces whose
// scores have the largest sum, by dynamic programming over the word's bytes. Immutable once built.
class UnigramModel {
 public:
  struct Options {
    int32_t unknown = -1;  // id of what no piece covers; -1: such text is refused
    bool byte_fallback = false;
  };

  // `pieces` in the order of their ids, with their scores; `vocabulary` the same by text. Both must
  // outlive this object.
  UnigramModel(const std::vector<std::pair<std::string, double>>* pieces,
               const Vocabulary* vocabulary, const Options& options);

  // Appends the ids of a word of any length, in O(bytes * longest piece). Characters that no piece
  // covers, in a row, are one unknown token, or the tokens <0x00> to <0xFF> of their bytes where
  // the vocabulary has all of them. Throws TextError where there is no unknown token.
  void Encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  // The best cut of the text up to a place: where its last piece begins, and its id.
  struct Best {
    double score = 0;
    size_t begin = SIZE_MAX;  // SIZE_MAX: none is known
    int32_t id = -1;
  };
  std::vector<Best> FindBest(std::string_view word) const;
  void Append(std::string_view piece, std::vector<int32_t>& ids) const;

  const std::vector<std::pair<std::string, double>>* pieces_;
  const Vocabulary* vocabulary_;
  Options options_;
  double unknown_score_ = 0;
  PieceTrie trie_;
};

}  // namespace equipoise
