// config.json of LLaVA-NeXT, and what it says of layers, weights and pictures.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "tests/models/config_json.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using testing::Refusal;

Json LlavaNext() {
  return Json::parse(R"({
    "model_type": "llava_next", "image_token_index": 310, "vision_feature_layer": -2,
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 48,
      "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 56,
      "patch_size": 14},
    "text_config": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 320}})");
}

// Ours, those of published folders, in which a model is exported, and of modules.
TEST_CASE("LLaVA is exported with the names of published folders", "[models][cpu]") {
  struct Row {
    const char *ours, *folder, *module;
  };
  const WeightNames names = WeightNamesOf(ParseModelConfig(LlavaNext(), "config.json"));
  for (const Row& row :
       std::vector<Row>{{"vision_tower.encoder.layers.1.mlp.fc1",
                         "vision_tower.vision_model.encoder.layers.1.mlp.fc1",
                         "model.vision_tower.encoder.layers.1.mlp.fc1"},
                        {"vision_tower.pre_layrnorm", "vision_tower.vision_model.pre_layrnorm",
                         "model.vision_tower.pre_layrnorm"},
                        {"vision_tower.head.attention", "vision_tower.vision_model.head.attention",
                         "model.vision_tower.head.attention"},
                        {"multi_modal_projector.linear_1", "multi_modal_projector.linear_1",
                         "model.multi_modal_projector.linear_1"},
                        {"language_model.model.layers.0.mlp.up_proj",
                         "language_model.model.layers.0.mlp.up_proj",
                         "model.language_model.layers.0.mlp.up_proj"},
                        {"language_model.lm_head", "language_model.lm_head", "lm_head"}}) {
    INFO(row.ours);
    const std::string ours = std::string(row.ours) + ".bias";
    CHECK(names.InFolder(ours).name == std::string(row.folder) + ".bias");
    CHECK(names.InMemory(row.ours) == row.module);
    for (const char* name : {row.ours, row.folder, row.module}) {
      CHECK(names.Canonical(std::string(name) + ".bias") == ours);
    }
  }
}

TEST_CASE("LLaVA-NeXT has resolutions and a vector behind rows of patches", "[models][cpu]") {
  Json json = LlavaNext();
  json["image_seq_length"] = 576;
  json["image_grid_pinpoints"] = {{56, 112}, {168, 56}};
  const ModelConfig config = ParseModelConfig(json, "config.json");
  const ImageSpec images = ImageSpecOf(config);
  CHECK(images.kind == ImageSpec::Kind::kAnyRes);
  CHECK(images.resolutions == std::vector<PatchGrid>{{1, 2}, {3, 1}});
  CHECK(images.mean[0] == 0.48145466F);
  // Three tiles of 17 rows; of four rows of eight patches two are padding.
  CHECK(images.LoadOfGrid({10, 40}) == PictureLoad{51, 3 * 17.0 * 17, 16 + 2 * 9});

  const LayerSpec projector = testing::ProjectorOf(config);
  CHECK(projector.parameters.back().name == "image_newline");
  CHECK(projector.parameters.back().shape == std::vector<int64_t>{config.text.hidden_size});
  const WeightNames names = WeightNamesOf(config);
  CHECK(names.Canonical("model.image_newline") == "image_newline");
  CHECK(names.Canonical("image_newline") == "image_newline");
  CHECK(names.InFolder("image_newline").name == "image_newline");
  CHECK(names.InMemory("image_newline") == "model.image_newline");

  const Json once = ToHuggingFace(config);
  CHECK(once["architectures"] == Json({"LlavaNextForConditionalGeneration"}));
  CHECK(once["image_grid_pinpoints"] == json["image_grid_pinpoints"]);
  CHECK(once["image_seq_length"] == 576);
  CHECK(ToHuggingFace(ParseModelConfig(once, "c")) == once);

  const auto refusal = [&json](const Json& pinpoints) {
    Json other = json;
    other["image_grid_pinpoints"] = pinpoints;
    return Refusal(other);
  };
  CHECK_THAT(refusal({{56, 100}}), Contains("image_grid_pinpoints: 56 x 100 pixels are not whole"));
  CHECK_THAT(refusal(Json::array()), Contains("image_grid_pinpoints: not a list"));
  CHECK_THAT(refusal({{56, 112}, {56}}), Contains("[56] is not a height and a width"));
  CHECK_THAT(refusal({{0, 56}}), Contains("[0,56] is not a height and a width"));
}

TEST_CASE("a published folder of LLaVA-NeXT leaves out the sizes of Mistral 7B", "[models][cpu]") {
  Json json = LlavaNext();
  json["vision_config"]["image_size"] = 336;
  json["text_config"] = {{"model_type", "mistral"}, {"sliding_window", nullptr},
                         {"vocab_size", 32064},     {"num_key_value_heads", 8},
                         {"rope_theta", 1e6},       {"intermediate_size", 14336}};
  const ModelConfig config = ParseModelConfig(json, "config.json");
  CHECK(config.text.hidden_size == 4096);
  CHECK(config.text.num_hidden_layers == 32);
  CHECK(config.image_grid_pinpoints.size() == 5);
}

}  // namespace
}  // namespace equipoise
