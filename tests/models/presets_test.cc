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
  CHECK(PresetConfig("llava1_5-7b").tokens_per_tile() == 576);
  CHECK(PresetConfig("quickstart").vision.patches() == 64);
  CHECK(PresetConfig("quickstart").tokens_per_tile() == 16);
}

TEST_CASE("a model says how it takes pictures", "[models][cpu]") {
  const ImageSpec images = ImageSpecOf(PresetConfig("internvl2-1b"));
  CHECK(images.takes_pictures());
  CHECK(images.tile_size == 448);
  const PictureLoad three = images.LoadOfTiles(3);
  CHECK(three.patches == 3 * 1025);  // a class token each
  CHECK(three.patch_pairs == 3.0 * 1025 * 1025);
  CHECK(three.image_tokens == 3 * 256);
  CHECK(images.TilesOf(three.patches) == 3);
  CHECK(images.mean[0] == 0.485F);
  CHECK(images.deviation[2] == 0.225F);
  ModelConfig text = PresetConfig("internvl2-1b");
  text.has_vision = false;
  CHECK_FALSE(ImageSpecOf(text).takes_pictures());
  CHECK(ImageSpecOf(text).LoadOfTiles(3).image_tokens == 0);
}

TEST_CASE("an unknown preset is refused with the known names", "[models][cpu]") {
  CHECK_THROWS_WITH(PresetConfig("internvl9"), Catch::Matchers::Contains("internvl2-26b"));
  CHECK_THROWS_AS(PresetConfig(""), ConfigError);
}

}  // namespace
}  // namespace equipoise
