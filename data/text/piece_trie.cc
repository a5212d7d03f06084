#include "data/text/piece_trie.h"

namespace equipoise {

void PieceTrie::Add(std::string_view piece, int32_t id) {
  uint32_t node = kRoot;
  for (const char c : piece) {
    const auto [edge, is_new] =
        edges_.try_emplace(EdgeOf(node, c), static_cast<uint32_t>(piece_at_.size()));
    if (is_new) piece_at_.push_back(-1);
    node = edge->second;
  }
  if (node != kRoot) piece_at_[node] = id;
}

uint32_t PieceTrie::Find(std::string_view text) const {
  uint32_t node = kRoot;
  for (size_t i = 0; i < text.size() && node != kNone; ++i) node = Next(node, text[i]);
  return node;
}

}  // namespace equipoise
