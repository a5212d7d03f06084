#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/text/merge_table.h"

namespace equipoise {

// Where BPE over characters can cut a text into pieces that have the same ids apart as together.
//
// A merge joins two neighbours, each made of the symbols (tokens of characters or of their bytes)
// between two places of the text. If no merge joins a token that ends with symbol `a` to one that
// begins with `b`, none ever crosses the place between an `a` and a `b`. Then the merges on both
// sides, lowest rank first, then leftmost, do not touch each other's tokens: in whichever order
// they take turns, each side does what it does alone.
//
// Asked is not for pairs of symbols but of classes: each character of ASCII, U+2581
// (SentencePiece's space), and all others.
class BpeCuts {
 public:
  static constexpr size_t kSpace = 128, kOther = 129, kClasses = 130;
  using Classes = std::bitset<kClasses>;

  // Cuts nothing.
  BpeCuts();
  // `symbols`: for each id, the classes of those characters whose first or last symbol it may be.
  // Cuts nothing where the merges are too tangled to tell.
  BpeCuts(const std::vector<Classes>& symbols, const std::vector<BpeMerge>& merges);

  // The class of the character that begins with text[at].
  static size_t ClassOf(std::string_view text, size_t at);

  // End of the piece that begins at `begin`: the text's beginning or the end of another piece.
  // REQUIRES: begin < text.size(); the text is valid UTF-8.
  size_t PieceEnd(std::string_view text, size_t begin) const;

 private:
  std::array<Classes, kClasses> joined_;  // [class before][class behind]: a merge may cross
};

}  // namespace equipoise
