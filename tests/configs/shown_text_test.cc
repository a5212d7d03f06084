#include "configs/base/shown_text.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

TEST_CASE("text from a file is shown on one line without what steers a terminal") {
  CHECK(ShownText("caf\xC3\xA9 \xE7\x8C\xAB.png") == "caf\xC3\xA9 \xE7\x8C\xAB.png");
  CHECK(ShownText("a\x1b[2J\nb\tc\rd\x7f") == "a\\x1b[2J\\nb\\tc\\rd\\x7f");
  CHECK(ShownText(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(ShownText("\xC2\x9B"
                  "31m") == "\\u009b31m");  // C1: another escape
  CHECK(ShownText("a\xE2\x80\xAE"
                  "b") == "a\\u202eb");  // turns the direction
  CHECK(ShownText("\xff\xC3") == "\\xff\\xc3");
  CHECK(ShownText(std::string(300, 'a')) == std::string(200, 'a') + "...");
  CHECK(ShownText(std::string(200, 'a')) == std::string(200, 'a'));
  CHECK(ShownText(ShownText("a\x1b\n")) == "a\\x1b\\n");
  CHECK(TerminalText("a\n\tb\x1b\r") == "a\n\tb\\x1b\\r");
}

TEST_CASE("a path in a command is one word to a shell") {
  CHECK(ShellWord("runs/mine-1.5_a") == "runs/mine-1.5_a");
  CHECK(ShellWord("") == "''");
  CHECK(ShellWord("runs/my run") == "'runs/my run'");
  CHECK(ShellWord("a'b") == "'a'\\''b'");
  CHECK(ShellWord("$(ls)~*") == "'$(ls)~*'");
}

}  // namespace
}  // namespace equipoise
