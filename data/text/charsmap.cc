#include "data/text/charsmap.h"

#include "configs/base/error.h"
#include "data/text/unicode_tables.h"
#include "data/text/utf8.h"

// The trie is darts-clone's: a unit of 32 bits a node, with the label of the edge to it, whether a
// value belongs to it, and the distance to its children.

namespace equipoise {
namespace {

constexpr size_t kShortGrapheme = 6;  // bytes; longer ones are taken apart

// Numbers of kGraphemeRuns.
enum Break : uint8_t {
  kOther,
  kCarriageReturn,
  kLineFeed,
  kControl,
  kExtend,
  kJoiner,
  kFlag,
  kPrepend,
  kSpacingMark,
  kLead,
  kVowel,
  kTail,
  kLeadVowel,
  kLeadVowelTail,
  kPictograph
};

uint32_t LabelOf(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xff); }
uint32_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & uint32_t{1} << 9) >> 6); }
bool HasValue(uint32_t unit) { return (unit >> 8 & 1) != 0; }

// Whether no boundary is between two code points, but for flags and joined pictographs.
bool Joins(uint8_t before, uint8_t after) {
  if (before == kCarriageReturn) return after == kLineFeed;
  if (before == kLineFeed || before == kControl) return false;
  if (after == kCarriageReturn || after == kLineFeed || after == kControl) return false;
  if (before == kLead)
    if (after == kLead || after == kVowel || after == kLeadVowel || after == kLeadVowelTail)
      return true;
  if ((before == kLeadVowel || before == kVowel) && (after == kVowel || after == kTail))
    return true;
  if ((before == kLeadVowelTail || before == kTail) && after == kTail) return true;
  return after == kExtend || after == kJoiner || after == kSpacingMark || before == kPrepend;
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& source) : breaks_(kGraphemeRuns) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  };
  const size_t size = bytes.size() < 4 ? 0 : number(0);
  if (bytes.size() < 4 || size % 4 != 0 || size == 0 || size > bytes.size() - 4)
    throw DataError(source + ": precompiled_charsmap is damaged; download the file again");
  trie_.reserve(size / 4);
  for (size_t at = 4; at < 4 + size; at += 4) trie_.push_back(number(at));
  replacements_ = std::string(bytes.substr(4 + size)) + '\0';
}

const char* Charsmap::Find(std::string_view part) const {
  size_t node = OffsetOf(trie_[0]);
  for (const char c : part) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return nullptr;
    node ^= byte;
    if (node >= trie_.size() || LabelOf(trie_[node]) != byte) return nullptr;
    const uint32_t unit = trie_[node];
    node ^= OffsetOf(unit);
    if (!HasValue(unit)) continue;
    if (node >= trie_.size()) return nullptr;
    const uint32_t value = trie_[node] & 0x7fffffff;
    return value < replacements_.size() ? replacements_.data() + value : nullptr;
  }
  return nullptr;
}

size_t Charsmap::GraphemeEnd(std::string_view text, size_t at) const {
  CodePoint point = ReadCodePoint(text, at);
  uint8_t before = breaks_[point.value];
  bool flag = before == kFlag;              // an odd number of flags' letters
  bool pictograph = before == kPictograph;  // with nothing but extenders, and a joiner, behind it
  for (at += point.bytes; at < text.size(); at += point.bytes) {
    point = ReadCodePoint(text, at);
    const uint8_t after = breaks_[point.value];
    const bool joined = (flag && before == kFlag && after == kFlag) ||
                        (pictograph && before == kJoiner && after == kPictograph);
    if (!joined && !Joins(before, after)) break;
    flag = after == kFlag && !(flag && before == kFlag);
    pictograph = after == kPictograph || (pictograph && (after == kExtend || after == kJoiner));
    before = after;
  }
  return at;
}

std::string Charsmap::Run(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = GraphemeEnd(text, at);
    const char* whole = end - at < kShortGrapheme ? Find(text.substr(at, end - at)) : nullptr;
    if (whole != nullptr) {
      out += whole;
      at = end;
    }
    while (at < end) {
      const std::string_view character = text.substr(at, ReadCodePoint(text, at).bytes);
      const char* replaced = Find(character);
      if (replaced != nullptr) {
        out += replaced;
      } else {
        out += character;
      }
      at += character.size();
    }
  }
  return out;
}

}  // namespace equipoise
