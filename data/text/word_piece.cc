#include "data/text/word_piece.h"

#include <algorithm>
#include <utility>

namespace equipoise {

WordPieceModel::WordPieceModel(const Vocabulary& vocabulary, Options options)
    : options_(std::move(options)) {
  for (const auto& [piece, id] : vocabulary) pieces_.Add(piece, id);
  inside_ = pieces_.Find(options_.prefix);
}

void WordPieceModel::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto begins_character = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  const auto characters = std::count_if(word.begin(), word.end(), begins_character);
  const size_t before = ids.size();
  bool covered = static_cast<uint64_t>(characters) <= options_.most_characters;
  for (size_t begin = 0; covered && begin < word.size();) {
    size_t end = begin;  // of the longest piece; pieces end where a character does
    int32_t longest = -1;
    uint32_t node = begin == 0 ? PieceTrie::kRoot : inside_;
    for (size_t i = begin; i < word.size() && node != PieceTrie::kNone; ++i) {
      node = pieces_.Next(node, word[i]);
      if (node == PieceTrie::kNone || pieces_.PieceAt(node) < 0) continue;
      longest = pieces_.PieceAt(node);
      end = i + 1;
    }
    covered = longest >= 0;
    ids.push_back(longest);
    begin = end;
  }
  if (covered) return;
  ids.resize(before);
  ids.push_back(options_.unknown);
}

}  // namespace equipoise
