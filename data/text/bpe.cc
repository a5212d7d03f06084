#include "data/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <queue>

#include "data/text/utf8.h"

namespace equipoise {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

constexpr uint32_t kNone = UINT32_MAX;

// A part of the word; parts form a list.
struct Symbol {
  int32_t id;  // -1 = merged into the one before
  uint32_t previous, next;
};

// A merge that was possible when it was found. Its symbols may have changed since.
struct Candidate {
  uint32_t rank, position;
  uint64_t pair;
  int32_t merged;
  bool operator<(const Candidate& other) const {  // top of the queue: lowest rank, then leftmost
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

// A word while it is merged.
class BpeModel::Word {
 public:
  Word(const BpeModel& model, const std::vector<int32_t>& symbols) : model_(model) {
    symbols_.reserve(symbols.size());
    for (uint32_t i = 0; i < symbols.size(); ++i) {
      symbols_.push_back({symbols[i], i - 1, i + 1 == symbols.size() ? kNone : i + 1});
    }
    std::vector<Candidate> candidates;
    candidates.reserve(symbols.size());
    queue_ = std::priority_queue<Candidate>({}, std::move(candidates));
    for (uint32_t i = 0; i + 1 < symbols.size(); ++i) Consider(i);
  }

  void MergeAll() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Symbol& left = symbols_[best.position];
      if (left.id < 0 || left.next == kNone) continue;
      Symbol& right = symbols_[left.next];
      if (PairKey(left.id, right.id) != best.pair) continue;
      left.id = best.merged;
      right.id = -1;
      left.next = right.next;
      if (left.next != kNone) {
        symbols_[left.next].previous = best.position;
        Consider(best.position);
      }
      if (left.previous != kNone) Consider(left.previous);
    }
  }

  void Append(std::vector<int32_t>& ids) const {
    for (uint32_t i = symbols_.empty() ? kNone : 0; i != kNone; i = symbols_[i].next) {
      ids.push_back(symbols_[i].id);
    }
  }

 private:
  void Consider(uint32_t position) {
    const Symbol& left = symbols_[position];
    const uint64_t pair = PairKey(left.id, symbols_[left.next].id);
    const auto found = model_.merges_.find(pair);
    if (found == model_.merges_.end()) return;
    queue_.push({found->second.rank, position, pair, found->second.merged});
  }

  const BpeModel& model_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

BpeModel::BpeModel(const Vocabulary* vocabulary, const std::vector<Merge>& merges,
                   const Options& options)
    : vocabulary_(vocabulary), options_(options) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto found =
        vocabulary->find(options.byte_fallback ? fmt::format("<0x{:02X}>", byte)
                                               : alphabet_.character(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == vocabulary->end() ? -1 : found->second;
  }
  merges_.reserve(merges.size());
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    merges_[PairKey(merge.left, merge.right)] = {rank, merge.merged};
  }
}

void BpeModel::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const auto whole =
        vocabulary_->find(options_.byte_fallback ? std::string(word) : alphabet_.ToText(word));
    if (whole != vocabulary_->end()) return ids.push_back(whole->second);
  }
  Word merged(*this, options_.byte_fallback ? CharactersOf(word) : BytesOf(word));
  merged.MergeAll();
  merged.Append(ids);
}

std::vector<int32_t> BpeModel::BytesOf(std::string_view word) const {
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  bool after_unknown = false;
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    const bool unknown = id < 0;
    if (!unknown) {
      symbols.push_back(id);
    } else if (options_.unknown >= 0 && !(options_.fuse_unknown && after_unknown)) {
      symbols.push_back(options_.unknown);
    }
    after_unknown = unknown;
  }
  return symbols;
}

// As in the `tokenizers` library, an unknown character's token waits for the next character of the
// vocabulary or for the end: the bytes of those between come before it.
std::vector<int32_t> BpeModel::CharactersOf(std::string_view word) const {
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  bool waiting = false;
  const auto give_unknown = [&] {
    if (waiting) symbols.push_back(options_.unknown);
    waiting = false;
  };
  std::string character;
  for (size_t at = 0; at < word.size(); at += character.size()) {
    character = word.substr(at, ReadCodePoint(word, at).bytes);
    const auto found = vocabulary_->find(character);
    if (found != vocabulary_->end()) {
      give_unknown();
      symbols.push_back(found->second);
    } else if (!AppendBytes(character, symbols) && options_.unknown >= 0) {
      if (!options_.fuse_unknown) give_unknown();
      waiting = true;
    }
  }
  give_unknown();
  return symbols;
}

bool BpeModel::AppendBytes(std::string_view character, std::vector<int32_t>& symbols) const {
  const auto id = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return id(c) < 0; })) {
    return false;
  }
  std::transform(character.begin(), character.end(), std::back_inserter(symbols), id);
  return true;
}

}  // namespace equipoise
