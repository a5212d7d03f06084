#include "trainer/common/durable_file.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "configs/base/error.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a file is replaced as a whole and leaves nothing beside it", "[files][cpu]") {
  const ScratchFolder scratch;
  WriteFileDurably(scratch.Path("a"), "one");
  WriteFileDurably(scratch.Path("a"), "two and more");
  CHECK(ReadText(scratch.Path("a")) == "two and more");
  CHECK(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a link is replaced, and one left under its temporary name does not disturb",
          "[files][cpu]") {
  const ScratchFolder scratch;
  ReplaceLink(scratch.Path("latest"), "a");
  fs::create_symlink("left", scratch.Path("latest.tmp"));
  ReplaceLink(scratch.Path("latest"), "b");
  CHECK(fs::read_symlink(scratch.Path("latest")) == "b");
}

TEST_CASE("a folder takes an empty place or that of another", "[files][cpu]") {
  const ScratchFolder scratch;
  const std::string from = scratch.Path("from"), to = scratch.Path("to");
  for (const char* text : {"first", "second"}) {
    fs::create_directory(from);
    WriteText(from + "/file", text);
    ReplaceFolder(from, to);
    CHECK(ReadText(to + "/file") == text);
    CHECK_FALSE(fs::exists(from));
  }
}

TEST_CASE("a file's sum is XXH3-64 of its bytes", "[files][cpu]") {
  const ScratchFolder scratch;
  WriteText(scratch.Path("empty"), "");
  CHECK(SumFile(scratch.Path("empty")).bytes == 0);
  CHECK(HexDigits(SumFile(scratch.Path("empty")).xxh3) == "2d06800538d394c2");  // published
  WriteText(scratch.Path("large"), std::string(3'000'001, 'x'));
  const FileSum large = SumFile(scratch.Path("large"));
  CHECK(large.bytes == 3'000'001);
  WriteText(scratch.Path("large"), std::string(3'000'000, 'x') + "y");
  CHECK(SumFile(scratch.Path("large")).xxh3 != large.xxh3);
  CHECK(HexDigits(0xab) == "00000000000000ab");
}

TEST_CASE("errors name the path and the reason", "[files][cpu]") {
  const ScratchFolder scratch;
  CHECK_THROWS_AS(WriteAndSync("/dev/full", "text"), RunError);
  CHECK_THROWS_WITH(WriteAndSync("/dev/full", "text"), Catch::Contains("/dev/full: cannot write") &&
                                                           Catch::Contains("free some space"));
  CHECK_THROWS_WITH(WriteAndSync("/dev/full", "text"),
                    Catch::Contains("or choose another folder; a run goes on from its last"));
  CHECK_THROWS_AS(SumFile(scratch.Path("absent")), RunError);
  CHECK_THROWS_AS(WriteFileDurably(scratch.Path("absent/file"), "text"), RunError);
}

}  // namespace
}  // namespace equipoise
