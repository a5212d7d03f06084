// Answers in a file that outlives the program.
#include "trainer/answers/kept_answers.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "configs/base/error.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

std::string ContentOf(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

TEST_CASE("answers outlive the program that gave them", "[trainer][cpu]") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.jsonl.part";
  const std::vector<NumberedAnswer> first = {{3, {"yes\n\"", "", true}},
                                             {0, {"", "gone.png", false}}};
  {
    KeptAnswers kept(path, 7, 4);
    CHECK(kept.taken().empty());
    kept.Add(first);
    kept.Add({});
    kept.Add({{1, {"no", "", false}}});
  }
  const auto taken = [&](uint64_t command) {
    return TextOf(KeptAnswers(path, command, 4).taken());
  };
  const std::string whole = ContentOf(path);
  CHECK(taken(7) == R"([[3,"yes\n\"","",true],[0,"","gone.png",false],[1,"no","",false]])");
  CHECK(ContentOf(path) == whole);

  SECTION("a line that is cut, or none of ours, is dropped with those behind it") {
    for (const char* end : {"[[2,\"may", "[[2,\"maybe\"]]\n", "no JSON\n[[2,\"a\",\"\",true]]\n",
                            "[[4,\"no such question\",\"\",true]]\n", "[[-1,\"\",\"\",true]]\n"}) {
      std::ofstream(path, std::ios::app) << end;
      CHECK(taken(7) == R"([[3,"yes\n\"","",true],[0,"","gone.png",false],[1,"no","",false]])");
      CHECK(ContentOf(path) == whole);
    }
  }
  SECTION("those of another command are none of this") {
    CHECK(taken(8) == "[]");
    CHECK(taken(7) == "[]");  // the file began anew
  }
  SECTION("once they are written elsewhere the file goes") {
    KeptAnswers(path, 7, 4).Remove();
    CHECK_FALSE(std::filesystem::exists(path));
  }
  CHECK_THROWS_AS(KeptAnswers(folder / "none/a.part", 7, 4), RunError);
}

TEST_CASE("a folder's stamp tells that a file has changed", "[trainer][cpu]") {
  const TemporaryFolder folder;
  const std::string file = folder.Write("model/a.safetensors", "1");
  const std::string model = folder / "model";
  const uint64_t stamp = FolderStamp(model);
  CHECK(FolderStamp(model) == stamp);
  std::filesystem::last_write_time(
      file, std::filesystem::last_write_time(file) + std::chrono::seconds(1));
  const uint64_t touched = FolderStamp(model);
  CHECK(touched != stamp);
  folder.Write("model/answers.jsonl.part", "1");
  CHECK(FolderStamp(model) == touched);
  folder.Write("model/config.json", "{}");
  CHECK(FolderStamp(model) != touched);
  CHECK_THROWS_AS(FolderStamp(folder / "none"), RunError);
}

}  // namespace
}  // namespace equipoise
