#include "trainer/check/check_recipe.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "configs/base/error.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

std::string Write(const std::string& text) {
  const auto path =
      std::filesystem::temp_directory_path() / ("recipe_" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << text;
  return path.string();
}

CheckRecipe Read(const std::string& text) { return ReadCheckRecipe(Write(text)); }

TEST_CASE("a recipe of AdamW steps is read", "[trainer][cpu]") {
  const CheckRecipe a =
      Read(R"({"optimizer": "AdamW", "lr": 0.001, "betas": [0.9, 0.98], "eps": 1e-7,
      "weight_decay": 0.01, "weight_decay_on": "all", "clip": null, "schedule": "constant",
      "losses": [1, 2, 3]})");
  CHECK(a.lrs == std::vector<double>(3, 0.001));
  CHECK(a.adamw.beta2 == 0.98);
  CHECK(a.adamw.eps == 1e-7);
  CHECK(a.weight_decay == 0.01);
  CHECK(a.decay_all);
  CHECK(a.clip == 0);
  const CheckRecipe b = Read(R"({"optimizer": "AdamW", "lr": 1, "lrs": [0, 0.5], "clip": 1.0,
      "weight_decay_on": "parameters with two or more dimensions", "schedule": "cosine"})");
  CHECK(b.lrs == std::vector<double>{0, 0.5});
  CHECK_FALSE(b.decay_all);
  CHECK(b.clip == 1.0);
  CHECK(Read(R"({"optimizer": "AdamW", "lr": 1})").lrs.size() == 10);
}

TEST_CASE("one of several recipes in a file is chosen by name", "[trainer][cpu]") {
  const std::string path = Write(R"({"note": "text", "a": {"optimizer": "AdamW", "lrs": [1]},
      "b": {"optimizer": "AdamW", "lrs": [2]}})");
  CHECK(ReadCheckRecipe(path + ":a").lrs == std::vector<double>{1});
  CHECK(ReadCheckRecipe(path + ":b").lrs == std::vector<double>{2});
  CHECK_THROWS_AS(ReadCheckRecipe(path), ConfigError);
  CHECK_THROWS_WITH(ReadCheckRecipe(path), Contains("a, b") && Contains(path + ":a"));
  CHECK_THROWS_AS(ReadCheckRecipe(path + ":c"), ConfigError);
  CHECK_THROWS_WITH(ReadCheckRecipe(path + ":c"), Contains("no such recipe") && Contains("a, b"));
  CHECK_THROWS_AS(ReadCheckRecipe(path + ":note"), ConfigError);
  CHECK_THROWS_WITH(ReadCheckRecipe(path + ".absent:b"), Contains(path + ".absent: "));

  CHECK(Read(R"({"only": {"optimizer": "AdamW", "lrs": [3]}})").lrs == std::vector<double>{3});
  Write(R"({"optimizer": "AdamW", "lrs": [4]})");
  CHECK_THROWS_AS(ReadCheckRecipe(path + ":a"), ConfigError);
  const std::string colon = path + ":a";
  std::filesystem::copy_file(path, colon);
  CHECK(ReadCheckRecipe(colon).lrs == std::vector<double>{4});
  std::filesystem::remove(colon);
}

TEST_CASE("a recipe that cannot be followed is refused by key", "[trainer][cpu]") {
  CHECK_THROWS_WITH(Read("[]"), Contains("not a JSON object"));
  CHECK_THROWS_WITH(Read(R"({"note": "nothing"})"), Contains("optimizer: missing"));
  CHECK_THROWS_WITH(Read(R"({"a": {"lr": 1}})"), Contains(".json: a: optimizer"));
  CHECK_THROWS_WITH(Read(R"({"optimizer": "SGD"})"), Contains("only AdamW"));
  CHECK_THROWS_WITH(Read(R"({"optimizer": "AdamW"})"), Contains("lr"));
  CHECK_THROWS_WITH(Read(R"({"optimizer": "AdamW", "lr": 1, "schedule": "cosine"})"),
                    Contains("lrs: missing"));
  CHECK_THROWS_WITH(Read(R"({"optimizer": "AdamW", "lrs": [1, "2"]})"), Contains("lrs"));
  CHECK_THROWS_WITH(Read(R"({"optimizer": "AdamW", "lrs": [1], "betas": [0.9]})"),
                    Contains("betas"));
  CHECK_THROWS_WITH(Read(R"({"optimizer": "AdamW", "lrs": [1], "weight_decay_on": "norms"})"),
                    Contains("weight_decay_on"));
  CHECK_THROWS_WITH(Read(R"({"optimizer": "AdamW", "lr": 1, "steps": 0})"), Contains("steps"));
}

TEST_CASE("a recipe that cannot be meant is refused by key", "[trainer][cpu]") {
  struct Bad {
    const char* expected;
    const char* members;
  };
  for (const auto& [expected, members] :
       std::vector<Bad>{{"lrs: must be one learning rate a step, and is empty", R"("lrs": [])"},
                        {"lrs: must be 0 or above", R"("lrs": [1, -0.5])"},
                        {"lr: must be 0 or above", R"("lr": -1)"},
                        {"betas: must be two numbers of at least 0 and below 1",
                         R"("lr": 1, "betas": [0.9, 1.0])"},
                        {"betas: must be two numbers", R"("lr": 1, "betas": [-0.1, 0.9])"},
                        {"eps: must be 0 or above", R"("lr": 1, "eps": -1)"},
                        {"weight_decay: must be 0 or above", R"("lr": 1, "weight_decay": -0.1)"},
                        {"clip: must be the largest norm", R"("lr": 1, "clip": -1)"},
                        {"amsgrad: is not supported; take", R"("lr": 1, "amsgrad": true)"},
                        {"maximize: is not supported; take", R"("lr": 1, "maximize": true)"}}) {
    INFO(members);
    const std::string recipe = std::string(R"({"optimizer": "AdamW", )") + members + "}";
    CHECK_THROWS_AS(Read(recipe), DataError);
    CHECK_THROWS_WITH(Read(recipe), Contains(expected));
  }
  CHECK_NOTHROW(Read(R"({"optimizer": "AdamW", "lr": 0, "betas": [0, 0], "eps": 0, "clip": 0,
      "amsgrad": false, "maximize": null})"));
}

TEST_CASE("a recipe's groups decay what it says and leave frozen weights out", "[trainer][cpu]") {
  std::vector<Parameter> parameters(3);
  parameters[0].shape = {2, 2};
  parameters[1].shape = {2};
  parameters[2].shape = {2, 2};
  parameters[2].trainable = false;
  const std::vector<Parameter*> list = {&parameters[0], &parameters[1], &parameters[2]};
  CheckRecipe recipe;
  recipe.weight_decay = 0.1;
  CHECK(RecipeGroups(recipe, list).size() == 2);
  recipe.decay_all = true;
  const auto groups = RecipeGroups(recipe, list);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].indices == std::vector<size_t>{0, 1});
  CHECK(groups[0].weight_decay == 0.1);
}

}  // namespace
}  // namespace equipoise
