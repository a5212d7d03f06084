#include <catch2/catch.hpp>
#include <string>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "trainer/checkpoint/checkpoint.h"

namespace equipoise {
namespace {

TEST_CASE("changed sections are refused with the keys that differ", "[checkpoint][cpu]") {
  const Json saved = {{"model", {{"hf", "a"}, {"freeze", Json::array({"vision"})}}},
                      {"data", {{"max_tokens", 64}, {"tiles", {{"max", 6}}}}}};
  CHECK_NOTHROW(CheckSections("c", saved, saved));
  Json current = saved;
  current["data"]["max_tokens"] = 128;
  current["data"]["tiles"]["max"] = 12;
  current["data"]["system"] = "x";
  current["model"].erase("hf");
  current["model"]["freeze"][0] = "llm";
  try {
    CheckSections("runs/a/checkpoints/step-00000010", saved, current);
    FAIL("no error");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what()) ==
          "runs/a/checkpoints/step-00000010: made with another configuration: data.max_tokens was "
          "64 and is 128, data.system was \"\" and is \"x\", data.tiles.max was 6 and is 12, "
          "model.freeze[0] was \"vision\" and is \"llm\", model.hf was \"a\" and is absent; change "
          "back, or start anew in another run.dir");
  }
}

TEST_CASE("a setting younger than the checkpoint had its default", "[checkpoint][cpu]") {
  const Json saved = {{"model", Json::object()}, {"data", {{"tiles", {{"max", 6}}}}}};
  Json current = saved;
  current["data"]["allow_outside"] = false;
  current["data"]["tiles"]["min"] = 1;
  CHECK_NOTHROW(CheckSections("c", saved, current));
  Json older = saved;
  older["data"]["follow_links"] = false;  // of programs before data.allow_outside
  CHECK_NOTHROW(CheckSections("c", older, current));
  older["data"]["train"].push_back({{"annotations", "a.jsonl"}, {"images", "."}, {"repeat", 1.0}});
  Json sources = current;
  sources["data"]["train"] = older["data"]["train"];
  sources["data"]["train"][0]["max_tiles"] = 0;
  CHECK_NOTHROW(CheckSections("c", older, sources));
  sources["data"]["train"][0]["max_tiles"] = 1;
  CHECK_THROWS_WITH(CheckSections("c", older, sources),
                    Catch::Contains("data.train[0].max_tiles was 0 and is 1"));
  current["data"]["allow_outside"] = true;
  CHECK_THROWS_WITH(CheckSections("c", saved, current),
                    Catch::Contains("data.allow_outside was false and is true"));
}

TEST_CASE("where the base of adapters lies is no difference", "[checkpoint][cpu]") {
  const Json current = {{"model", {{"base_weights", "7f"}, {"projector", Json::object()}}}};
  Json older = current;
  older["model"]["vision"] = "old/vit", older["model"]["llm"] = "old/llm";
  older["model"]["projector"]["weights"] = "old/mm_projector.bin";
  CHECK_NOTHROW(CheckSections("c", older, current));
  older["model"]["base_weights"] = "80";
  CHECK_THROWS_WITH(CheckSections("c", older, current), Catch::Contains("model.base_weights"));
}

TEST_CASE("the samples of a micro-batch stay where they are a fixed number", "[checkpoint][cpu]") {
  const Json older = {{"train", {{"seed", 1}}}};
  Json saved = older, current = older;
  saved["train"]["micro_batch"] = 4;
  current["train"]["micro_batch"] = 2;
  CHECK_NOTHROW(CheckSections("c", older, current));
  CHECK_NOTHROW(CheckSections("c", saved, saved));
  CHECK_THROWS_WITH(CheckSections("c", saved, current),
                    Catch::Contains("train.micro_batch was 4 and is 2"));
}

TEST_CASE("annotation files that changed are named", "[checkpoint][cpu]") {
  const Json saved = {{"data",
                       {{"train", {{{"annotations", "a.jsonl"}}, {{"annotations", "b.jsonl"}}}},
                        {"files", {"01", "02"}},
                        {"content", "5"}}}};
  CHECK_NOTHROW(CheckSections("c", saved, saved));
  Json current = saved;
  current["data"]["files"][1] = "03";
  current["data"]["content"] = "6";
  CHECK_THROWS_WITH(CheckSections("c", saved, current),
                    Catch::Contains("c: made from other records: b.jsonl changed since"));
  Json renamed = current;
  renamed["data"]["train"][1]["annotations"] = "c.jsonl";
  CHECK_THROWS_WITH(CheckSections("c", saved, renamed),
                    "c: made with another configuration: data.train[1].annotations was \"b.jsonl\" "
                    "and is \"c.jsonl\"; change back, or start anew in another run.dir");
  current["data"]["files"] = saved["data"]["files"];
  CHECK_THROWS_WITH(
      CheckSections("c", saved, current),
      Catch::Contains("c: made from other samples: records of data.train, their pictures' sizes or "
                      "the tokenizer changed since, or another version of this program made it") &&
          Catch::Contains("`equipoise export c --out FOLDER` and model.hf"));
  Json old = saved;  // written before files were named
  old["data"].erase("files");
  CHECK_NOTHROW(CheckSections("c", old, saved));
  CHECK_THROWS_WITH(CheckSections("c", old, current), Catch::Contains("records of data.train"));
}

TEST_CASE("settings that differ are told in words", "[checkpoint][cpu]") {
  const Json saved = {{"train", {{"lr", 1e-4}, {"steps", 8}}}};
  CHECK(SettingsDifference(saved, saved).empty());
  CHECK(SettingsDifference(Json(), saved).empty());
  CHECK(SettingsDifference(saved, {{"train", {{"lr", 5e-5}, {"steps", 10}}}}) ==
        "train.lr was 0.0001 and is 5e-05, train.steps was 8 and is 10");
}

TEST_CASE("another environment is told in words", "[checkpoint][cpu]") {
  const Json saved = {{"threads", 4}, {"mesh", {{"data", 2}}}};
  CHECK(EnvironmentDifference(saved, saved).empty());
  CHECK(EnvironmentDifference(saved, {{"threads", 2}, {"mesh", {{"data", 1}}}}) ==
        "mesh.data 2 -> 1, threads 4 -> 2");
}

}  // namespace
}  // namespace equipoise
