// config.json of LLaVA-OneVision, and what it says of layers, weights and pictures.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/models/config_json.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using testing::Refusal;

Json Onevision() {
  return Json::parse(R"({
    "model_type": "llava_onevision", "image_token_index": 310, "video_token_index": 311,
    "vision_config": {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3,
      "num_attention_heads": 3, "image_size": 56, "patch_size": 14, "vision_use_head": false},
    "text_config": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320},
    "image_grid_pinpoints": [[56, 112], [168, 168]], "vision_aspect_ratio": "anyres_max_2"})");
}

TEST_CASE("LLaVA-OneVision brings many patches down and has squares", "[models][cpu]") {
  const ModelConfig config = ParseModelConfig(Onevision(), "config.json");
  CHECK(config.vision.model_type == "siglip_vision_model");
  CHECK(config.vision.feature_layers == 3);  // all of them
  CHECK(config.text.model_type == "qwen2");
  CHECK(config.video_token_id == 311);
  const ImageSpec images = ImageSpecOf(config);
  CHECK(images.kind == ImageSpec::Kind::kAnyRes);
  CHECK(images.resolutions == std::vector<PatchGrid>{{1, 2}, {3, 3}});
  CHECK(images.max_tiles == 2);
  CHECK(images.lone_tiles);
  CHECK(images.fit == ImageSpec::Fit::kPad);
  CHECK(images.mean[0] == 0.5F);
  CHECK(images.takes_videos());
  // Ten tiles of 16 rows without a class token; 12 x 12 patches are brought down to 5 x 5.
  CHECK(images.LoadOfGrid({168, 168}) == PictureLoad{160, 10 * 16.0 * 16, 16 + 5 * 6});

  const LayerSpec projector = testing::ProjectorOf(config);
  CHECK(projector.parameters.back().name == "image_newline");
  // It is given every patch, however few become tokens.
  CHECK(projector.mlp.products[0].rows.per_patch == 1);
  CHECK(projector.mlp.products[0].rows.per_image_token == 0);
  const WeightNames names = WeightNamesOf(config);
  CHECK(names.Canonical("model.image_newline") == "image_newline");
  CHECK(names.Canonical("vision_tower.vision_model.post_layernorm.bias") ==
        "vision_tower.post_layernorm.bias");
  CHECK(names.Canonical("model.language_model.norm.weight") ==
        names.Canonical("language_model.model.norm.weight"));
}

TEST_CASE("a config.json of LLaVA-OneVision comes back with every key", "[models][cpu]") {
  const Json json = Onevision();
  const Json once = ToHuggingFace(ParseModelConfig(json, "config.json"));
  CHECK(once["architectures"] == Json({"LlavaOnevisionForConditionalGeneration"}));
  for (const char* key :
       {"image_grid_pinpoints", "vision_aspect_ratio", "image_token_index", "video_token_index"}) {
    CHECK(once[key] == json[key]);
  }
  CHECK(once["vision_feature_layer"] == -1);
  CHECK(once["vision_feature_select_strategy"] == "full");
  CHECK_FALSE(once.contains("image_seq_length"));
  CHECK(ToHuggingFace(ParseModelConfig(once, "c")) == once);
}

TEST_CASE("keys that LLaVA-OneVision leaves out have Transformers' defaults", "[models][cpu]") {
  Json json = Onevision();
  json["vision_config"]["image_size"] = 384;
  json["text_config"]["vocab_size"] = 152000;
  for (const char* key :
       {"image_grid_pinpoints", "image_token_index", "video_token_index", "vision_aspect_ratio"}) {
    json[key] = nullptr;
  }
  const ModelConfig config = ParseModelConfig(json, "config.json");
  CHECK(config.image_grid_pinpoints == PresetConfig("llava_onevision-7b").image_grid_pinpoints);
  CHECK(config.image_grid_pinpoints.size() == 36);
  CHECK(config.image_token_id == 151646);
  CHECK(config.video_token_id == 151647);
  CHECK(config.anyres_max_tiles == 9);
}

TEST_CASE("what LLaVA-OneVision's config.json may not say is refused", "[models][cpu]") {
  struct Row {
    const char* key;
    Json value;
    std::string what;
  };
  for (const Row& row : std::vector<Row>{
           {"vision_aspect_ratio", "pad", "vision_aspect_ratio: 'pad' is not supported"},
           {"vision_aspect_ratio", "anyres", "use anyres_max_9, or another number of tiles"},
           {"vision_aspect_ratio", "anyres_max_", "'anyres_max_' is not supported"},
           {"vision_aspect_ratio", "anyres_max_0", "'anyres_max_0' is not supported"},
           {"vision_aspect_ratio", "anyres_max_9x", "'anyres_max_9x' is not supported"},
           {"vision_feature_layer", {-1, -2}, "vision_feature_layer: only one layer"},
           {"vision_feature_select_strategy", "default", "only 'full' is"},
           {"image_grid_pinpoints", {{56, 100}}, "56 x 100 pixels are not whole tiles of 56"},
           {"image_token_index", 320, "image_token_index: 320 is outside the vocabulary"}}) {
    INFO(row.key << " " << row.value);
    Json json = Onevision();
    json[row.key] = row.value;
    CHECK_THAT(Refusal(json), Contains(row.what));
  }
  Json clip = Onevision();
  clip["vision_config"]["model_type"] = "clip_vision_model";
  clip["vision_feature_select_strategy"] = "default";
  CHECK_THAT(Refusal(clip), Contains("'clip_vision_model' is not supported here"));
}

}  // namespace
}  // namespace equipoise
