#include "data/records/line_reader.h"

#include <catch2/catch.hpp>
#include <vector>

#include "configs/base/error.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

struct Seen {
  uint64_t offset;
  int64_t number;
  std::string text;
  bool too_long;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> ReadRange(const TextFile& file, int64_t begin, int64_t end, int64_t longest,
                            int64_t& lines) {
  std::vector<Seen> seen;
  LineReader reader(&file, begin, end, longest);
  for (Line line; reader.Next(line);) {
    seen.push_back({line.offset, lines + line.number, std::string(line.text), line.too_long});
    if (!line.too_long) CHECK(ReadAt(file, line.offset, line.bytes) == line.text);
  }
  lines += reader.lines();
  return seen;
}

TEST_CASE("lines come with offset and number, blank ones are passed over", "[data][cpu]") {
  const TemporaryFolder folder;
  const TextFile file(folder.Write("a.jsonl", "\xEF\xBB\xBFone\n\n  \t\r\ntwo\r\nlast"));
  int64_t lines = 0;
  const auto seen = ReadRange(file, 0, file.bytes, 100, lines);
  REQUIRE(seen.size() == 3);
  CHECK(seen[0] == Seen{3, 1, "one", false});
  CHECK(seen[1] == Seen{13, 4, "two\r", false});
  CHECK(seen[2] == Seen{18, 5, "last", false});
  CHECK(lines == 5);
}

TEST_CASE("ranges share the lines out whatever their borders", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string text = "a\nbb\n\nccc\n" + std::string(40, 'x') + "\ndddd\n\n\ne";
  const std::string mark = "\xEF\xBB\xBF";  // of the byte order; ranges may end within it
  struct Case {
    std::string text;
    size_t records;
  };
  for (const Case& each : {Case{text, 6},
                           {mark + text, 6},
                           {mark + "one", 1},
                           {mark + "\none", 1},
                           {mark, 0},
                           {mark + "\n\n", 0}}) {
    INFO(each.text);
    const TextFile file(folder.Write("a.jsonl", each.text));
    int64_t all_lines = 0;
    const auto whole = ReadRange(file, 0, file.bytes, 30, all_lines);
    REQUIRE(whole.size() == each.records);
    if (each.text == text) {
      CHECK(whole[3].too_long);
      CHECK(whole[4] == Seen{51, 6, "dddd", false});
    }
    for (int64_t width = 1; width <= file.bytes; ++width) {
      std::vector<Seen> joined;
      int64_t lines = 0;
      for (int64_t begin = 0; begin < file.bytes; begin += width) {
        const auto part = ReadRange(file, begin, begin + width, 30, lines);
        joined.insert(joined.end(), part.begin(), part.end());
      }
      INFO(width);
      CHECK(joined == whole);
      CHECK(lines == all_lines);
    }
    int64_t lines = 0;
    CHECK(ReadRange(file, 0, 0, 30, lines).empty());
  }
}

TEST_CASE("a huge line is passed over without being kept", "[data][cpu]") {
  const TemporaryFolder folder;
  const TextFile file(folder.Write(
      "a.jsonl", "a\n" + std::string(3 << 20, 'x') + "\nb\n" + std::string(1 << 20, 'y')));
  int64_t lines = 0;
  const auto seen = ReadRange(file, 0, file.bytes, 1000, lines);
  REQUIRE(seen.size() == 4);
  CHECK(seen[1] == Seen{2, 2, "", true});
  CHECK(seen[2] == Seen{3 + (3 << 20), 3, "b", false});
  CHECK(seen[3].too_long);
}

TEST_CASE("only regular files are read", "[data][cpu]") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(TextFile(folder / "none.jsonl"), DataError);
  CHECK_THROWS_AS(TextFile(folder.path()), DataError);
  const TextFile empty(folder.Write("empty.jsonl", ""));
  LineReader reader(&empty, 0, 0, 10);
  Line line;
  CHECK_FALSE(reader.Next(line));
}

}  // namespace
}  // namespace equipoise
