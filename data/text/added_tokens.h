#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/code_points.h"

namespace equipoise {

// A token that is found in the text before it is cut into words.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // matched in the normalized text
};

// Finder of added tokens in text, by a trie: leftmost first, of those that begin at one place the
// longest. O(text * longest token) in the worst case. Immutable once built.
class AddedTokenFinder {
 public:
  AddedTokenFinder();
  // Adds a token, to be found where the text has `pattern`.
  void Add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return tokens_.empty(); }

  // Calls `plain` for the text between tokens and `token` for the id of each token, in order.
  void Split(std::string_view text, const std::function<void(std::string_view)>& plain,
             const std::function<void(int32_t)>& token) const;

 private:
  struct Found {
    size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;
  };
  Found FindNext(std::string_view text, size_t start) const;
  // True where no word character touches [begin, end).
  bool StandsAlone(std::string_view text, size_t begin, size_t end) const;
  const AddedToken* LongestAt(std::string_view text, size_t at, size_t& end) const;

  CodePointTable word_;  // 1: a word character
  std::vector<AddedToken> tokens_;
  // A trie: node << 8 | byte -> node; node 0 is the root.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> token_at_ = {-1};  // of each node: index of the token that ends there
  bool first_bytes_[256] = {};
};

}  // namespace equipoise
