// POSIX.1-1988 (ustar) headers with the extensions that Python's tarfile and GNU tar write. A
// header is one block of 512 bytes; the member's bytes follow, padded to whole blocks. Every step
// forward is at least a block, and every number is checked against the archive's size before it is
// added, so that no archive is read for longer than its length allows.
#include "data/records/tar_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"

namespace equipoise {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kRecord = 20 * kBlock;  // archives are filled up with zeros to these
// Longest header of a long name: names are 4096 bytes at most, pax has some other keys.
constexpr uint64_t kMostExtended = 64 << 10;
constexpr uint64_t kMostBytes = uint64_t{1} << 60;

// A text field, up to its first NUL.
std::string_view TextOf(std::string_view field) { return field.substr(0, field.find('\0')); }

// A number field: octal digits between blanks and NULs, or GNU's big-endian form for large ones.
std::optional<uint64_t> NumberOf(std::string_view field) {
  uint64_t value = 0;
  if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
    if (static_cast<uint8_t>(field[0]) != 0x80) return std::nullopt;  // negative, or too large
    for (const char c : field.substr(1)) {
      if (value >= kMostBytes >> 8) return std::nullopt;
      value = value << 8 | static_cast<uint8_t>(c);
    }
    return value;
  }
  const size_t first = std::min(field.find_first_not_of(' '), field.size());
  const size_t last =
      std::min(field.find_first_of(std::string_view(" \0", 2), first), field.size());
  if (first == last) return 0;
  const auto end = std::from_chars(field.data() + first, field.data() + last, value, 8);
  if (end.ec != std::errc() || end.ptr != field.data() + last || value > kMostBytes)
    return std::nullopt;
  return value;
}

// The sum of the header's bytes, with blanks in place of the sum itself.
bool HasItsSum(std::string_view header) {
  constexpr size_t kSum = 148, kSumBytes = 8;
  uint64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool own = i >= kSum && i < kSum + kSumBytes;
    sum += own ? ' ' : static_cast<uint8_t>(header[i]);
  }
  return NumberOf(header.substr(kSum, kSumBytes)) == sum;
}

std::string NameOf(std::string_view header) {
  const std::string name(TextOf(header.substr(0, 100)));
  // GNU's magic ends with blanks, and it keeps other things where ustar has the prefix.
  if (header.substr(257, 6) != std::string_view("ustar\0", 6)) return name;
  const std::string_view prefix = TextOf(header.substr(345, 155));
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

}  // namespace

void TarReader::Fail(const std::string& what) const {
  throw DataError(fmt::format("{}: at byte {}: {}", source_, at_, what));
}

std::string TarReader::ReadExtended(uint64_t offset, uint64_t bytes) const {
  if (bytes > kMostExtended) {
    Fail(fmt::format("a name's header of {} bytes; at most {} are read", bytes, kMostExtended));
  }
  return read_(offset, bytes);
}

// Lines "LENGTH KEY=VALUE\n", the length counting itself and the line end.
void TarReader::ReadPax(std::string_view text, Extended& extended) const {
  while (!text.empty()) {
    size_t length = 0;
    const auto digits = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto begin = static_cast<size_t>(digits.ptr - text.data()) + 1;
    if (digits.ec != std::errc() || length > text.size() || length < begin + 1 ||
        text[begin - 1] != ' ' || text[length - 1] != '\n') {
      Fail("a damaged pax header; write the archive again");
    }
    const std::string_view line = text.substr(begin, length - 1 - begin);
    const size_t equals = line.find('=');
    const std::string_view key = line.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : line.substr(equals + 1);
    if (key == "path") extended.name = value;
    if (key.starts_with("GNU.sparse")) Fail("a sparse file; write it as a plain one");
    if (key == "size") {
      const auto end =
          std::from_chars(value.data(), value.data() + value.size(), extended.bytes, 10);
      extended.has_bytes = true;
      if (end.ec != std::errc() || end.ptr != value.data() + value.size() ||
          extended.bytes > kMostBytes)
        Fail("a damaged size in a pax header; write the archive again");
    }
    text.remove_prefix(length);
  }
}

bool TarReader::Next(TarMember& member) {
  Extended extended;
  member.begin = at_;
  while (at_ < bytes_) {
    const std::string header = read_(at_, kBlock);
    if (header.size() < kBlock) Fail("the archive ends within a header; it is cut");
    if (header.find_first_not_of('\0') == std::string::npos) {  // the end's mark
      for (uint64_t at = at_; at < bytes_; at += kRecord) {  // the padding of any blocking factor
        if (read_(at, kRecord).find_first_not_of('\0') != std::string::npos)
          Fail("the archive ends here, and another follows; unpack both, and write them as one");
      }
      return false;
    }
    if (!HasItsSum(header)) Fail("no header of a tar archive; it is damaged, or no tar archive");
    const auto size = NumberOf(std::string_view(header).substr(124, 12));
    if (!size) Fail("a member's size is no number; write the archive again");
    const char type = header[156];
    const bool file = type == '0' || type == '\0' || type == '7';
    member.name = extended.name.empty() ? NameOf(header) : extended.name;
    member.bytes = file && extended.has_bytes ? extended.bytes : *size;
    member.offset = at_ + kBlock;
    if (member.bytes > bytes_ - member.offset) {
      Fail(fmt::format("{} has {} bytes, more than the archive; it is cut", ShownText(member.name),
                       member.bytes));
    }
    const uint64_t next = member.offset + (member.bytes + kBlock - 1) / kBlock * kBlock;
    if (next > bytes_ && bytes_ > member.offset + member.bytes) {
      Fail(fmt::format("the archive ends behind {}, within a block; it is cut",
                       ShownText(member.name)));
    }
    member.end = std::min(next, bytes_);
    if (type == 'x') {
      ReadPax(ReadExtended(member.offset, member.bytes), extended);
    } else if (type == 'L') {
      extended.name = TextOf(ReadExtended(member.offset, member.bytes));
    } else if (!file && type != '5' && type != 'g' && type != 'K') {
      Fail(fmt::format("{} is a link or another special member; write it as a plain file",
                       ShownText(member.name)));
    }
    at_ = member.end;
    if (file) return true;
    if (type == '5') extended = {};
    if (type == '5' || type == 'g') member.begin = at_;
  }
  return false;
}

}  // namespace equipoise
