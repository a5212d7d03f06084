#include "data/text/added_tokens.h"

#include "data/text/unicode_tables.h"
#include "data/text/utf8.h"

namespace equipoise {
namespace {

// The code point that ends at `end`. REQUIRES: end > 0, valid UTF-8.
CodePoint CodePointBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return ReadCodePoint(text, begin);
}

size_t SkipSpaceLeft(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    const CodePoint point = CodePointBefore(text, begin);
    if (!IsWhiteSpace(point.value)) break;
    begin -= point.bytes;
  }
  return begin;
}

size_t SkipSpaceRight(std::string_view text, size_t end) {
  while (end < text.size()) {
    const CodePoint point = ReadCodePoint(text, end);
    if (!IsWhiteSpace(point.value)) break;
    end += point.bytes;
  }
  return end;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder() : word_(kWordRuns) {}

void AddedTokenFinder::Add(const AddedToken& token, std::string_view pattern) {
  uint32_t node = 0;
  for (const char c : pattern) {
    const uint64_t edge = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    const auto [found, added] = edges_.try_emplace(edge, static_cast<uint32_t>(token_at_.size()));
    if (added) token_at_.push_back(-1);
    node = found->second;
  }
  if (node == 0) return;
  first_bytes_[static_cast<uint8_t>(pattern[0])] = true;
  token_at_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedToken* AddedTokenFinder::LongestAt(std::string_view text, size_t at, size_t& end) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (token_at_[node] >= 0) {
      longest = &tokens_[static_cast<size_t>(token_at_[node])];
      end = i + 1;
    }
  }
  return longest;
}

bool AddedTokenFinder::StandsAlone(std::string_view text, size_t begin, size_t end) const {
  const bool joined_left = begin > 0 && word_[CodePointBefore(text, begin).value] != 0;
  const bool joined_right = end < text.size() && word_[ReadCodePoint(text, end).value] != 0;
  return !joined_left && !joined_right;
}

AddedTokenFinder::Found AddedTokenFinder::FindNext(std::string_view text, size_t start) const {
  for (size_t at = start; at < text.size(); ++at) {
    if (!first_bytes_[static_cast<uint8_t>(text[at])]) continue;
    Found found{at, at, nullptr};
    found.token = LongestAt(text, at, found.end);
    if (found.token == nullptr) continue;
    if (!found.token->single_word || StandsAlone(text, found.begin, found.end)) return found;
    at = found.end - 1;
  }
  return {text.size(), text.size(), nullptr};
}

void AddedTokenFinder::Split(std::string_view text,
                             const std::function<void(std::string_view)>& plain,
                             const std::function<void(int32_t)>& token) const {
  size_t done = 0;  // end of the text passed on
  size_t search = 0;
  while (search < text.size() && !tokens_.empty()) {
    Found found = FindNext(text, search);
    if (found.token == nullptr) break;
    search = found.end;
    if (found.begin < done) continue;  // rstrip of the token before took its start
    if (found.token->lstrip) found.begin = SkipSpaceLeft(text, found.begin, done);
    if (found.token->rstrip) found.end = SkipSpaceRight(text, found.end);
    if (found.begin > done) plain(text.substr(done, found.begin - done));
    token(found.token->id);
    done = found.end;
  }
  if (done < text.size()) plain(text.substr(done));
}

}  // namespace equipoise
