#include "models/families/presets.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "models/families/families.h"

namespace equipoise {
namespace {

TEST_CASE("every preset is a possible model that survives config.json", "[models][cpu]") {
  for (const std::string& name : PresetNames()) {
    INFO(name);
    const ModelConfig config = PresetConfig(name);
    const Json json = ToHuggingFace(config);
    CHECK(ToHuggingFace(ParseModelConfig(json, name)) == json);
  }
  CHECK(PresetConfig("internvl2-1b").tokens_per_tile() == 256);
  CHECK(PresetConfig("quickstart").vision.patches() == 64);
  CHECK(PresetConfig("quickstart").tokens_per_tile() == 16);
}

TEST_CASE("an unknown preset is refused with the known names", "[models][cpu]") {
  CHECK_THROWS_WITH(PresetConfig("internvl9"), Catch::Matchers::Contains("internvl2-26b"));
  CHECK_THROWS_AS(PresetConfig(""), ConfigError);
}

}  // namespace
}  // namespace equipoise
