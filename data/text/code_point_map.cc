#include "data/text/code_point_map.h"

#include "data/text/unicode_tables.h"
#include "data/text/utf8.h"

namespace equipoise {
namespace {

// The first three are numbers of the tables.
enum Change : uint8_t { kKeep, kRemove, kSpace, kSetApart, kReplace };

CodePointTable TableOf(CodePointMap::Kind kind) {
  switch (kind) {
    case CodePointMap::Kind::kStripAccents:
      return CodePointTable(kAccentRuns);
    case CodePointMap::Kind::kBertClean:
      return CodePointTable(kBertCleanRuns);
    case CodePointMap::Kind::kBertStrip:
      return CodePointTable(kBertAccentRuns);
    case CodePointMap::Kind::kBertSpace:
    case CodePointMap::Kind::kLowercase:
      break;
  }
  return CodePointTable();
}

}  // namespace

CodePointMap::CodePointMap(Kind kind) : change_(TableOf(kind)) {
  if (kind == Kind::kBertSpace) {
    for (const CodePointRange& range : NonZeroSet(kBertSpacedRuns).Ranges())
      change_.Set(range.begin, range.end, kSetApart);
  }
  if (kind != Kind::kLowercase) return;
  ForEachParts(kLowercaseParts, [&](uint32_t point, bool, const std::vector<uint32_t>& parts) {
    change_.Set(point, point + 1, kReplace);
    for (const uint32_t part : parts) AppendCodePoint(lowercase_[point], part);
  });
}

std::string CodePointMap::Run(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = ReadCodePoint(text, at);
    const std::string_view same = text.substr(at, point.bytes);
    switch (change_[point.value]) {
      case kRemove:
        break;
      case kSpace:
        out += ' ';
        break;
      case kSetApart:
        out.append(1, ' ').append(same).append(1, ' ');
        break;
      case kReplace:
        out += lowercase_.at(point.value);
        break;
      default:
        out += same;
    }
    at += point.bytes;
  }
  return out;
}

}  // namespace equipoise
