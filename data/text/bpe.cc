#include "data/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <queue>

namespace equipoise {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Up to so many symbols a search for the best merge is quicker than a queue of them.
constexpr size_t kFew = 32;

// A part of the word; parts form a list.
struct Symbol {
  int32_t id;  // -1 = merged into the one before
  uint32_t previous, next;
};

// A merge that was possible when it was found. Its symbols may have changed since.
struct Candidate {
  uint32_t rank, position;
  int32_t left, right, merged;
  bool operator<(const Candidate& other) const {  // top of the queue: lowest rank, then leftmost
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

// A word while it is merged.
class Word {
 public:
  Word(const MergeTable& merges, const std::vector<int32_t>& symbols) : merges_(merges) {
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
      if (left.id != best.left || right.id != best.right) continue;
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
    const Symbol& right = symbols_[left.next];
    const MergeTable::Target target = merges_.Find(left.id, right.id);
    if (target.rank == MergeTable::kNoRank) return;
    queue_.push({target.rank, position, left.id, right.id, target.merged});
  }

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

// Merges at most kFew symbols in place.
void MergeFew(const MergeTable& merges, std::vector<int32_t>& symbols) {
  std::array<MergeTable::Target, kFew> targets;  // of each symbol and the next
  const auto lower = [](const auto& a, const auto& b) { return a.rank < b.rank; };
  size_t pairs = symbols.empty() ? 0 : symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) targets[i] = merges.Find(symbols[i], symbols[i + 1]);
  while (pairs > 0) {
    const auto end = targets.begin() + static_cast<std::ptrdiff_t>(pairs);
    const auto best = std::min_element(targets.begin(), end, lower);  // the leftmost of equal ones
    if (best->rank == MergeTable::kNoRank) return;
    const auto at = best - targets.begin();
    const auto i = static_cast<size_t>(at);
    symbols[i] = best->merged;
    symbols.erase(symbols.begin() + at + 1);
    std::copy(best + 1, end, best);
    --pairs;
    if (i < pairs) targets[i] = merges.Find(symbols[i], symbols[i + 1]);
    if (i > 0) targets[i - 1] = merges.Find(symbols[i - 1], symbols[i]);
  }
}

}  // namespace

BpeModel::BpeModel(const Vocabulary* vocabulary, const std::vector<Merge>& merges,
                   const Options& options)
    : vocabulary_(vocabulary), options_(options), merges_(merges.size()) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto found =
        vocabulary->find(options.byte_fallback ? fmt::format("<0x{:02X}>", byte)
                                               : alphabet_.character(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = found == vocabulary->end() ? -1 : found->second;
  }
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    merges_.Set(merge.left, merge.right, {rank, merge.merged});
  }
  if (!options.byte_fallback) return;
  ascii_ids_.fill(-1);
  for (const auto& [token, id] : *vocabulary) {
    if (token.empty()) continue;
    const CodePoint point = ReadCodePoint(token, 0);
    if (!point.valid || point.bytes != token.size()) continue;
    if (point.value < 0x80) {
      ascii_ids_[point.value] = id;
    } else {
      character_ids_[point.value] = id;
    }
  }
  FindCuts(merges);
}

// A piece must not begin or end where the symbols of a character depend on those around it: where
// an unknown one waits or leaves no symbol.
void BpeModel::FindCuts(const std::vector<Merge>& merges) {
  const bool has_bytes =
      std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id >= 0; });
  if (!has_bytes || options_.ignore_merges) return;
  int32_t largest = 0;
  for (const auto& [token, id] : *vocabulary_) largest = std::max(largest, id);
  std::vector<BpeCuts::Classes> symbols(static_cast<size_t>(largest) + 1);
  const auto set = [&](int32_t id, size_t of) { symbols[static_cast<size_t>(id)].set(of); };
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte >= 0x80) {
      set(byte_ids_[byte], BpeCuts::kSpace);
      set(byte_ids_[byte], BpeCuts::kOther);
    } else {
      set(ascii_ids_[byte] >= 0 ? ascii_ids_[byte] : byte_ids_[byte], byte);
    }
  }
  for (const auto& [point, id] : character_ids_) {
    std::string character;
    AppendCodePoint(character, point);
    set(id, BpeCuts::ClassOf(character, 0));
  }
  cuts_.emplace(symbols, merges);
}

void BpeModel::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    const auto whole =
        vocabulary_->find(options_.byte_fallback ? std::string(word) : alphabet_.ToText(word));
    if (whole != vocabulary_->end()) return ids.push_back(whole->second);
  }
  std::vector<int32_t> symbols = options_.byte_fallback ? CharactersOf(word) : BytesOf(word);
  if (symbols.size() <= kFew) {
    MergeFew(merges_, symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
    return;
  }
  Word merged(merges_, symbols);
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
  for (size_t at = 0; at < word.size();) {
    const CodePoint point = ReadCodePoint(word, at);
    const std::string_view character = word.substr(at, point.bytes);
    at += point.bytes;
    if (const int32_t id = IdOf(point); id >= 0) {
      give_unknown();
      symbols.push_back(id);
    } else if (!AppendBytes(character, symbols) && options_.unknown >= 0) {
      if (!options_.fuse_unknown) give_unknown();
      waiting = true;
    }
  }
  give_unknown();
  return symbols;
}

int32_t BpeModel::IdOf(const CodePoint& character) const {
  if (!character.valid) return -1;
  if (character.value < 0x80) return ascii_ids_[character.value];
  const auto found = character_ids_.find(character.value);
  return found == character_ids_.end() ? -1 : found->second;
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
