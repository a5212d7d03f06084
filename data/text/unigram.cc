#include "data/text/unigram.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/text/text_error.h"
#include "data/text/utf8.h"

// Scores, the penalty of what is unknown and the choice among equal cuts (the first found) are
// those of the `tokenizers` library, so that ids are the same to the last tie.

namespace equipoise {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

UnigramModel::UnigramModel(const std::vector<std::pair<std::string, double>>* pieces,
                           const Vocabulary* vocabulary, const Options& options)
    : pieces_(pieces), vocabulary_(vocabulary), options_(options) {
  double least = 0;
  for (size_t id = 0; id < pieces->size(); ++id) {
    const auto& [piece, score] = (*pieces)[id];
    least = id == 0 ? score : std::min(least, score);
    trie_.Add(piece, vocabulary->at(piece));
  }
  unknown_score_ = least - kUnknownPenalty;
}

std::vector<UnigramModel::Best> UnigramModel::FindBest(std::string_view word) const {
  std::vector<Best> best(word.size() + 1);
  best[0].begin = 0;
  const auto consider = [&](size_t begin, size_t end, double score, int32_t id) {
    Best& here = best[end];
    score += best[begin].score;
    if (here.begin == SIZE_MAX || score > here.score) here = {score, begin, id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t character = ReadCodePoint(word, begin).bytes;
    bool covered = false;  // the character is a piece by itself
    uint32_t node = PieceTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = trie_.Next(node, word[end++]);
      if (node == PieceTrie::kNone) break;
      const int32_t id = trie_.PieceAt(node);
      if (id < 0) continue;
      consider(begin, end, (*pieces_)[static_cast<size_t>(id)].second, id);
      covered |= end - begin == character;
    }
    if (!covered) {
      if (options_.unknown < 0)
        throw TextError("the vocabulary has no piece for a character, and no unknown token");
      consider(begin, begin + character, unknown_score_, options_.unknown);
    }
    begin += character;
  }
  return best;
}

void UnigramModel::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  const std::vector<Best> best = FindBest(word);
  std::vector<std::string_view> pieces;  // from the last to the first
  bool after_unknown = false;
  for (size_t end = word.size(); end > 0; end = best[end].begin) {
    const size_t begin = best[end].begin;
    const bool unknown = best[end].id == options_.unknown;
    if (unknown && after_unknown) {  // it joins the one behind it
      pieces.back() = word.substr(begin, end - begin + pieces.back().size());
    } else {
      pieces.push_back(word.substr(begin, end - begin));
    }
    after_unknown = unknown;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) Append(*piece, ids);
}

void UnigramModel::Append(std::string_view piece, std::vector<int32_t>& ids) const {
  const auto found = vocabulary_->find(std::string(piece));
  if (found != vocabulary_->end()) return ids.push_back(found->second);
  if (options_.byte_fallback) {
    std::vector<int32_t> bytes;
    for (const char c : piece) {
      const auto byte = vocabulary_->find(fmt::format("<0x{:02X}>", static_cast<uint8_t>(c)));
      if (byte == vocabulary_->end()) break;
      bytes.push_back(byte->second);
    }
    if (bytes.size() == piece.size())
      return ids.insert(ids.end(), bytes.begin(), bytes.end()), void();
  }
  ids.push_back(options_.unknown);
}

}  // namespace equipoise
