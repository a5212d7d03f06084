#include "models/spec/weight_map.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"

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
  const auto find = [&](const char* name) { return map.Find(name).name; };
  CHECK(find("language_model.model.norm.weight") == "model.language_model.norm.weight");
  CHECK(find("model.language_model.norm.weight") == "model.language_model.norm.weight");
  CHECK(find("language_model.lm_head.weight") == "lm_head.weight");
  CHECK(find("vision_tower.embeddings.cls_token").empty());
  CHECK_THROWS_AS(WeightMap({"lm_head.weight", "language_model.lm_head.weight"}, true, "dir"),
                  DataError);
}

// OpenGVLab's names of the weights of a layer and around it, beside ours.
TEST_CASE("OpenGVLab's names lead to ours and back", "[models][cpu]") {
  struct Row {
    const char *theirs, *ours;
    int part = 0, parts = 1;
  };
  const std::vector<Row> table = {
      {"vision_model.embeddings.class_embedding", "vision_tower.embeddings.cls_token"},
      {"vision_model.embeddings.patch_embedding.weight",
       "vision_tower.embeddings.patch_embeddings.projection.weight"},
      {"vision_model.embeddings.patch_embedding.bias",
       "vision_tower.embeddings.patch_embeddings.projection.bias"},
      {"vision_model.embeddings.position_embedding", "vision_tower.embeddings.position_embeddings"},
      {"vision_model.encoder.layers.17.attn.qkv.weight",
       "vision_tower.encoder.layer.17.attention.q_proj.weight", 0, 3},
      {"vision_model.encoder.layers.17.attn.qkv.weight",
       "vision_tower.encoder.layer.17.attention.k_proj.weight", 1, 3},
      {"vision_model.encoder.layers.17.attn.qkv.bias",
       "vision_tower.encoder.layer.17.attention.v_proj.bias", 2, 3},
      {"vision_model.encoder.layers.0.attn.q_norm.weight",
       "vision_tower.encoder.layer.0.attention.q_norm.weight"},
      {"vision_model.encoder.layers.0.attn.k_norm.weight",
       "vision_tower.encoder.layer.0.attention.k_norm.weight"},
      {"vision_model.encoder.layers.0.attn.proj.bias",
       "vision_tower.encoder.layer.0.attention.projection_layer.bias"},
      {"vision_model.encoder.layers.0.norm1.weight",
       "vision_tower.encoder.layer.0.layernorm_before.weight"},
      {"vision_model.encoder.layers.0.norm2.bias",
       "vision_tower.encoder.layer.0.layernorm_after.bias"},
      {"vision_model.encoder.layers.0.ls1", "vision_tower.encoder.layer.0.lambda_1"},
      {"vision_model.encoder.layers.0.ls2", "vision_tower.encoder.layer.0.lambda_2"},
      {"vision_model.encoder.layers.0.mlp.fc1.weight",
       "vision_tower.encoder.layer.0.mlp.fc1.weight"},
      {"mlp1.0.weight", "multi_modal_projector.layer_norm.weight"},
      {"mlp1.1.bias", "multi_modal_projector.linear_1.bias"},
      {"mlp1.3.weight", "multi_modal_projector.linear_2.weight"},
      {"language_model.model.layers.0.mlp.up_proj.weight",
       "language_model.model.layers.0.mlp.up_proj.weight"},
      {"language_model.lm_head.weight", "language_model.lm_head.weight"},
  };
  for (const Row& row : table) {
    INFO(row.theirs);
    const std::vector<std::string> ours = CanonicalWeightNames(row.theirs, true);
    REQUIRE(ours.size() == static_cast<size_t>(row.parts));
    CHECK(ours[static_cast<size_t>(row.part)] == row.ours);
    CHECK(CanonicalWeightNames(row.ours, true) == std::vector<std::string>{row.ours});
    const FileWeight there = NameInFolder(row.ours, WeightNaming::kOpenGvLab);
    CHECK(there.name == row.theirs);
    CHECK(there.part == row.part);
    CHECK(there.parts == row.parts);
    CHECK(NameInFolder(row.ours, WeightNaming::kTransformers).name == row.ours);
    const FileWeight found = WeightMap({row.theirs}, true, "dir").Find(row.ours);
    CHECK(found.name == row.theirs);
    CHECK(found.part == row.part);
    CHECK(found.parts == row.parts);
  }
  // No beginning of a longer word.
  CHECK(CanonicalWeightName("mlp1.10.weight", true) == "mlp1.10.weight");
  CHECK_THROWS_AS(WeightMap({"vision_model.encoder.layers.0.attn.qkv.weight",
                             "vision_tower.encoder.layer.0.attention.k_proj.weight"},
                            true, "dir"),
                  DataError);
}

}  // namespace
}  // namespace equipoise
