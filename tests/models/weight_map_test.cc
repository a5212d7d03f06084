#include "models/weight_map.h"

#include <catch2/catch.hpp>

#include "configs/error.h"

namespace equipoise {
namespace {

TEST_CASE("every version's name of a weight leads to ours", "[models][cpu]") {
  struct Row {
    bool has_vision;
    const char* name;
    const char* ours;
  };
  const std::vector<Row> table = {
      {true, "model.language_model.layers.3.mlp.up_proj.weight",
       "language_model.model.layers.3.mlp.up_proj.weight"},
      {true, "language_model.layers.3.mlp.up_proj.weight",
       "language_model.model.layers.3.mlp.up_proj.weight"},
      {true, "language_model.model.norm.weight", "language_model.model.norm.weight"},
      {true, "lm_head.weight", "language_model.lm_head.weight"},
      {true, "language_model.lm_head.weight", "language_model.lm_head.weight"},
      {true, "model.vision_tower.embeddings.cls_token", "vision_tower.embeddings.cls_token"},
      {true, "vision_tower.embeddings.cls_token", "vision_tower.embeddings.cls_token"},
      {true, "model.multi_modal_projector.linear_1.bias", "multi_modal_projector.linear_1.bias"},
      {true, "something.else", "something.else"},
      {false, "model.layers.0.input_layernorm.weight", "model.layers.0.input_layernorm.weight"},
      {false, "layers.0.input_layernorm.weight", "model.layers.0.input_layernorm.weight"},
      {false, "embed_tokens.weight", "model.embed_tokens.weight"},
      {false, "norm.weight", "model.norm.weight"},
      {false, "lm_head.weight", "lm_head.weight"},
  };
  for (const Row& row : table) {
    CHECK(CanonicalWeightName(row.name, row.has_vision) == row.ours);
    CHECK(CanonicalWeightName(row.ours, row.has_vision) == row.ours);
  }
}

TEST_CASE("a parameter is found under the file's own name", "[models][cpu]") {
  const WeightMap map({"model.language_model.norm.weight", "lm_head.weight"}, true, "dir");
  CHECK(map.Find("language_model.model.norm.weight") == "model.language_model.norm.weight");
  CHECK(map.Find("model.language_model.norm.weight") == "model.language_model.norm.weight");
  CHECK(map.Find("language_model.lm_head.weight") == "lm_head.weight");
  CHECK(map.Find("vision_tower.embeddings.cls_token").empty());
  CHECK_THROWS_AS(WeightMap({"lm_head.weight", "language_model.lm_head.weight"}, true, "dir"),
                  DataError);
}

}  // namespace
}  // namespace equipoise
