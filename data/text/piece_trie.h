#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace equipoise {

// A trie of a vocabulary's pieces, which finds all that begin at a place of a text byte by byte.
// Immutable once built, so threads share it.
class PieceTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;

  // Adds a piece; of equal ones the last counts, and an empty one is never found.
  void Add(std::string_view piece, int32_t id);
  // The node behind a byte; kNone: no piece goes on with it.
  uint32_t Next(uint32_t node, char byte) const {
    const auto edge = edges_.find(EdgeOf(node, byte));
    return edge == edges_.end() ? kNone : edge->second;
  }
  // The node behind a text from the root on; kNone: no piece begins with it.
  uint32_t Find(std::string_view text) const;
  // The id of the piece that ends at a node; -1: none does.
  int32_t PieceAt(uint32_t node) const { return piece_at_[node]; }

 private:
  static uint64_t EdgeOf(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
  }
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<int32_t> piece_at_ = {-1};          // of each node
};

}  // namespace equipoise
