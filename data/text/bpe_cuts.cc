#include "data/text/bpe_cuts.h"

namespace equipoise {
namespace {

// Merges are in the order of their ranks, so that most are behind those that make their parts.
constexpr int kMostRounds = 16;

}  // namespace

BpeCuts::BpeCuts() {
  for (Classes& behind : joined_) behind.set();
}

BpeCuts::BpeCuts(const std::vector<Classes>& symbols, const std::vector<BpeMerge>& merges) {
  std::vector<Classes> first = symbols, last = symbols;  // of the tokens' symbols
  const auto at = [](std::vector<Classes>& of, int32_t id) -> Classes& {
    return of[static_cast<size_t>(id)];
  };
  const auto add = [](const Classes& more, Classes& to) {
    const bool grows = (more & ~to).any();
    to |= more;
    return grows;
  };
  bool growing = true;
  for (int round = 0; growing && round < kMostRounds; ++round) {
    growing = false;
    for (const BpeMerge& merge : merges) {
      growing |= add(at(first, merge.left), at(first, merge.merged));
      growing |= add(at(last, merge.right), at(last, merge.merged));
    }
  }
  for (const BpeMerge& merge : merges) {
    for (size_t before = 0; before < kClasses; ++before) {
      if (at(last, merge.left)[before]) joined_[before] |= at(first, merge.right);
    }
  }
  if (growing) *this = BpeCuts();
}

size_t BpeCuts::ClassOf(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return byte;
  return text.substr(at, 3) == "\xE2\x96\x81" ? kSpace : kOther;
}

size_t BpeCuts::PieceEnd(std::string_view text, size_t begin) const {
  size_t before = ClassOf(text, begin);
  for (size_t at = begin + 1; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) continue;  // within a character
    const size_t behind = ClassOf(text, at);
    if (!joined_[before][behind]) return at;
    before = behind;
  }
  return text.size();
}

}  // namespace equipoise
