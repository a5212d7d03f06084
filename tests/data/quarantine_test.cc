#include "data/records/quarantine.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

std::vector<Json> Lines(const std::string& path) {
  std::vector<Json> lines;
  std::istringstream text(ReadWholeFile(path));
  for (std::string line; std::getline(text, line);)
    lines.push_back(Json::parse(line, nullptr, false));
  return lines;
}

TEST_CASE("a record is written once, whoever meets it again", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string path = folder / "quarantine.jsonl";
  Quarantine first(path), second(path);
  CHECK(first.Add({7, "a.jsonl", 8, "id7", "cut \xff short\n"}, 12, 0));
  CHECK_FALSE(first.Add({7, "a.jsonl", 8, "id7", "again"}, 13, 0));
  CHECK_FALSE(second.Add({7, "a.jsonl", 8, "id7", "other rank"}, 13, 1));
  CHECK(second.Add({7, "b.jsonl", 8, "", "other file"}, std::nullopt, 1));
  Quarantine resumed(path);
  CHECK(resumed.size() == 2);
  CHECK_FALSE(resumed.Add({7, "b.jsonl", 8, "", "x"}, 1, 0));
  const auto lines = Lines(path);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["sample"] == 7);
  CHECK(lines[0]["file"] == "a.jsonl");
  CHECK(lines[0]["line"] == 8);
  CHECK(lines[0]["id"] == "id7");
  CHECK(lines[0]["step"] == 12);
  CHECK(lines[0]["rank"] == 0);
  CHECK(lines[0]["reason"].get<std::string>().starts_with("cut "));
  CHECK_FALSE(lines[1].contains("step"));
}

TEST_CASE("ranks that append at once lose and repeat nothing", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string path = folder / "quarantine.jsonl";
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      ranks.emplace_back([&, rank] {
        Quarantine quarantine(path);
        for (int64_t line = 1; line <= 50; ++line)
          quarantine.Add({line, "a", line, "x", "y"}, line, rank);
      });
    }
  }
  CHECK(Lines(path).size() == 50);
  CHECK(Quarantine(path).size() == 50);
}

TEST_CASE("a line torn by a kill is passed over", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string path =
      folder.Write("quarantine.jsonl", "{\"file\":\"a\",\"line\":1}\n{\"file\":\"b\",\"li");
  Quarantine quarantine(path);
  CHECK(quarantine.size() == 1);
  CHECK(quarantine.Add({0, "b", 2, "", "x"}, 1, 0));
  const auto lines = Lines(path);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1].is_discarded());
  CHECK(lines[2]["file"] == "b");
  CHECK_THROWS_AS(Quarantine(folder / "none/quarantine.jsonl"), RunError);
}

}  // namespace
}  // namespace equipoise
