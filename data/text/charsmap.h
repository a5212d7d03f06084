#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/code_points.h"

namespace equipoise {

// SentencePiece's compiled normalization ("precompiled_charsmap"): texts that are replaced, in a
// double-array trie, and by what. Immutable once built.
class Charsmap {
 public:
  // `bytes`: the size of the trie, the trie, the replacements with a NUL behind each. Throws
  // DataError that begins with `source:`.
  Charsmap(std::string_view bytes, const std::string& source);

  // `text` (valid UTF-8) as the `tokenizers` library replaces it: a grapheme of less than six bytes
  // as a whole by its shortest beginning in the trie, else character by character.
  std::string Run(std::string_view text) const;

 private:
  // What the shortest beginning of `part` in the trie becomes; null: none is in it.
  const char* Find(std::string_view part) const;
  // The end of the grapheme cluster that begins at `at` (Unicode's Standard Annex 29, without the
  // rule for conjuncts, all of which have six bytes).
  size_t GraphemeEnd(std::string_view text, size_t at) const;

  CodePointTable breaks_;  // grapheme cluster break classes
  std::vector<uint32_t> trie_;
  std::string replacements_;  // ends with a NUL
};

}  // namespace equipoise
