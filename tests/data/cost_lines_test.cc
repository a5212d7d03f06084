#include "data/index/cost_lines.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "configs/base/error.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

struct File {
  explicit File(const std::string& text) : path(folder / "costs.jsonl") {
    std::ofstream(path) << text;
  }
  TemporaryFolder folder;
  std::string path;
};

TEST_CASE("sizes are read from plain lines and from any JSON that says the same", "[data][cpu]") {
  const File file(
      "{\"vit_num\":3,\"token_num\":811}\n"
      "{\"vit_num\":1,\"token_num\":40,\"image_flags\":0}\n"
      "{ \"token_num\" : 1500, \"id\": \"a\", \"vit_num\": 5 }\r\n"
      "{\"vit_num\":2,\"token_num\":600,\"target_num\":30}\n"
      "{ \"target_num\": 0, \"vit_num\":2,\"token_num\":600}\n"
      "{\"token_num\":7,\"vit_num\":0,\"id\":12}");
  const auto sizes = ReadCostLines(file.path, {});
  const std::vector<SampleSize> expected = {{3, 811},     {1, 40},     {5, 1500, 1500},
                                            {2, 600, 30}, {2, 600, 0}, {0, 7, 7}};
  REQUIRE(sizes.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(sizes[i].patches == expected[i].patches);
    CHECK(sizes[i].tokens == expected[i].tokens);
    CHECK(sizes[i].targets == expected[i].targets);
  }
}

TEST_CASE("a bad line is named with file and number", "[data][cpu]") {
  const std::string good = "{\"vit_num\":1,\"token_num\":40}\n";
  const std::pair<std::string, std::string> cases[] = {
      {"{\"vit_num\":1,\"token_num\":0}", "token_num is 0"},
      {"{\"vit_num\":-1,\"token_num\":-1}", "token_num is -1"},
      {"{\"vit_num\":-1,\"token_num\":5}", "vit_num is -1"},
      {"{\"vit_num\":70000,\"token_num\":5}", "vit_num is 70000"},
      {"{\"vit_num\":1,\"token_num\":99999999}", "token_num is 99999999"},
      {"{\"vit_num\":1,\"token_num\":5,\"target_num\":6}", "target_num is 6"},
      {"{\"vit_num\":1,\"token_num\":5,\"target_num\":-1}", "target_num is -1"},
      {"{\"vit_num\":1,\"tokens_num\":40}", "did you mean 'token_num'"},
      {"{\"vit_num\":1,\"weight\":4,\"token_num\":40}", "'weight' is no known key"},
      {"{\"vit_num\":1}", "token_num"},
      {"{\"vit_num\":1.5,\"token_num\":40}", "vit_num"},
      {"{\"vit_num\":1,\"token_num\":40,\"token_num\":41}", "token_num"},
      {"{\"vit_num\":1,\"token_num\":40}}", ""},
      {"{\"vit_num\":1,\"token_num\":40,}", ""},
      {"{", ""},
      {"[1, 40]", "no JSON object"},
      {"\n" + good, "is empty"},
  };
  for (const auto& [line, message] : cases) {
    INFO(line);
    const File file(good + line + "\n");
    CHECK_THROWS_AS(ReadCostLines(file.path, {}), DataError);
    CHECK_THROWS_WITH(ReadCostLines(file.path, {}),
                      StartsWith(file.path + ":2") && Contains(message));
  }
  CHECK_THROWS_WITH(ReadCostLines(File("\n").path, {}), Contains("costs.jsonl"));
  CHECK_THROWS_AS(ReadCostLines("/nowhere/costs.jsonl", {}), DataError);
}

}  // namespace
}  // namespace equipoise
