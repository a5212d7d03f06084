#include "trainer/make_plan.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "configs/error.h"
#include "models/presets.h"

namespace equipoise {
namespace {

using Words = std::vector<std::string>;

// The recompute of each layer, one letter a layer: n, a, m, f.
std::string RecomputeOf(const std::string& word, const Words& modules = {},
                        const Words& layers = {}) {
  RunConfig config;
  config.balance.recompute = word;
  config.balance.recompute_modules = modules;
  config.balance.recompute_layers = layers;
  std::string letters;
  for (const Recompute kind : MakePlan(config, PresetConfig("quickstart"), 1).recompute) {
    letters += ToString(kind)[0];
  }
  return letters;
}

TEST_CASE("recompute is for all layers, for modules, or layer by layer") {
  // Patch embedding, blocks, projector; embedding, blocks, head.
  const std::string none = RecomputeOf("none");
  CHECK(none.find_first_not_of('n') == std::string::npos);
  CHECK(RecomputeOf("bar") == none);  // left to the planner, which `check` does not ask
  CHECK(RecomputeOf("full") == std::string(none.size(), 'f'));
  CHECK(RecomputeOf("mlp", {"vision", "projector", "llm"}) == std::string(none.size(), 'm'));
  const std::string vision = RecomputeOf("attention", {"vision"});
  const size_t end = vision.find('n');
  CHECK(end > 1);
  CHECK(vision == std::string(end, 'a') + std::string(none.size() - end, 'n'));
  Words words(none.size(), "none");
  words[1] = "mlp";
  words.back() = "full";
  std::string expected = none;
  expected[1] = 'm';
  expected.back() = 'f';
  CHECK(RecomputeOf("attention", {}, words) == expected);
}

TEST_CASE("a recompute that does not fit the model is refused") {
  CHECK_THROWS_WITH(RecomputeOf("full", {"vison"}),
                    "balance.recompute_modules: this model has no 'vison'; use vision, projector "
                    "or llm");
  CHECK_THROWS_WITH(RecomputeOf("none", {"llm"}),
                    "balance.recompute_modules: says where balance.recompute is done, which is "
                    "none; set it to full, attention or mlp");
  CHECK_THROWS_WITH(RecomputeOf("bar", {"llm"}),
                    Catch::Matchers::Contains("chosen for each layer (bar)"));
  const Words words(RecomputeOf("none").size(), "full");
  CHECK_THROWS_WITH(RecomputeOf("full", {"llm"}, words),
                    Catch::Matchers::EndsWith("given layer by layer; take one of the two out"));
  CHECK_THROWS_WITH(RecomputeOf("none", {}, {"none", "full"}),
                    Catch::Matchers::StartsWith("balance.recompute_layers: 2 words given, the "
                                                "model has "));
}

}  // namespace
}  // namespace equipoise
