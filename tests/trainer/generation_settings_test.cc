#include "trainer/answers/generation_settings.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

using Ids = std::vector<int32_t>;

TEST_CASE("a folder's generation_config.json is read", "[trainer][cpu]") {
  const TemporaryFolder folder;
  CHECK(ReadGenerationSettings(folder.path()).ends.empty());
  CHECK(ReadGenerationSettings(folder.path()).source.empty());
  struct Row {
    const char* text;
    Ids ends;
    double penalty;
  };
  for (const Row& row : {Row{"{}", {}, 1},
                         {R"({"eos_token_id": null, "repetition_penalty": null})", {}, 1},
                         {R"({"eos_token_id": 7, "repetition_penalty": 1.05})", {7}, 1.05},
                         {R"({"eos_token_id": [151645, 151643]})", {151645, 151643}, 1}}) {
    CAPTURE(row.text);
    folder.Write("generation_config.json", row.text);
    const GenerationSettings settings = ReadGenerationSettings(folder.path());
    CHECK(settings.ends == row.ends);
    CHECK(settings.repetition_penalty == row.penalty);
    CHECK(settings.source == folder / "generation_config.json");
  }
  for (const char* bad : {"{", "[]", R"({"eos_token_id": "2"})", R"({"eos_token_id": [2, 1.5]})",
                          R"({"repetition_penalty": 0})", R"({"repetition_penalty": "x"})"}) {
    CAPTURE(bad);
    folder.Write("generation_config.json", bad);
    CHECK_THROWS_AS(ReadGenerationSettings(folder.path()), DataError);
    CHECK_THROWS_WITH(ReadGenerationSettings(folder.path()),
                      Catch::Contains("/generation_config.json:"));
  }
}

TEST_CASE("a folder says that its template's token ends answers", "[trainer][cpu]") {
  const TemporaryFolder folder;
  ModelConfig config;
  config.text.vocab_size = 10;
  config.text.eos_token_id = 2;
  const std::string path = folder / "generation_config.json";
  WriteEndToken(-1, config, folder.path());
  WriteEndToken(2, config, folder.path());
  CHECK_FALSE(std::filesystem::exists(path));
  WriteEndToken(7, config, folder.path());
  CHECK(ReadJsonFile(path) == Json({{"eos_token_id", {7, 2}}}));
  folder.Write("generation_config.json",
               R"({"_from_model_config": true, "eos_token_id": 5, "top_p": 0.8})");
  WriteEndToken(5, config, folder.path());
  CHECK(ReadJsonFile(path).contains("_from_model_config"));
  WriteEndToken(7, config, folder.path());
  CHECK(ReadJsonFile(path) == Json({{"eos_token_id", {7, 2, 5}}, {"top_p", 0.8}}));
  // Where there is such a file, Transformers does not look into config.json.
  folder.Write("generation_config.json", R"({"eos_token_id": 5})");
  WriteEndToken(2, config, folder.path());
  CHECK(ReadJsonFile(path) == Json({{"eos_token_id", {2, 5}}}));
}

TEST_CASE("an answer ends at the template's token and at every end token", "[trainer][cpu]") {
  ModelConfig config;
  config.text.vocab_size = 100;
  CHECK(EndTokens(-1, config, {}).empty());
  config.text.eos_token_id = 3;
  CHECK(EndTokens(5, config, {}) == Ids{5, 3});
  config.source = {{"eos_token_id", {3, 4}}, {"text_config", {{"eos_token_id", {4, 6}}}}};
  CHECK(EndTokens(5, config, {}) == Ids{5, 3, 4, 6});
  CHECK(EndTokens(5, config, {{6, 7, 100, 5}, 1, ""}) == Ids{5, 3, 4, 6, 7});
  config.source = {{"llm_config", {{"eos_token_id", 8}}}};
  CHECK(EndTokens(-1, config, {}) == Ids{3, 8});
}

}  // namespace
}  // namespace equipoise
