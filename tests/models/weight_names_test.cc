#include "models/spec/weight_names.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"

namespace equipoise {
namespace {

WeightNames Names(bool has_vision, WeightNaming naming = WeightNaming::kTransformers) {
  ModelConfig config = PresetConfig("quickstart");
  config.has_vision = has_vision;
  config.naming = naming;
  return WeightNamesOf(config);
}

WeightMap Map(const std::vector<std::string>& names) { return {names, Names(true), "dir"}; }

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
    CHECK(Names(row.has_vision).Canonical(row.name) == row.ours);
    CHECK(Names(row.has_vision).Canonical(row.ours) == row.ours);
  }
}

TEST_CASE("a parameter is found under the file's own name", "[models][cpu]") {
  const WeightMap map = Map({"model.language_model.norm.weight", "lm_head.weight"});
  const auto find = [&](const char* name) { return map.Find(name).name; };
  CHECK(find("language_model.model.norm.weight") == "model.language_model.norm.weight");
  CHECK(find("model.language_model.norm.weight") == "model.language_model.norm.weight");
  CHECK(find("language_model.lm_head.weight") == "lm_head.weight");
  CHECK(find("vision_tower.embeddings.cls_token").empty());
  CHECK_THROWS_AS(Map({"lm_head.weight", "language_model.lm_head.weight"}), DataError);
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
    const std::vector<WeightNames::Held> ours = Names(true).Ours(row.theirs);
    REQUIRE(ours.size() == static_cast<size_t>(row.parts));
    CHECK(ours[static_cast<size_t>(row.part)].name == row.ours);
    CHECK(Names(true).Canonical(row.ours) == row.ours);
    const FileWeight there = Names(true, WeightNaming::kOriginal).InFolder(row.ours);
    const FileWeight found = Map({row.theirs}).Find(row.ours);
    CHECK(there.name == row.theirs);
    CHECK(found.name == row.theirs);
    for (const FusedRows& rows : {there.rows, found.rows}) {
      CHECK(rows.first == row.part);
      CHECK(rows.count == 1);
      CHECK(rows.period == row.parts);
      CHECK(rows.repeats == 1);
    }
    CHECK(Names(true).InFolder(row.ours).name == row.ours);
  }
  // No beginning of a longer word.
  CHECK(Names(true).Canonical("mlp1.10.weight") == "mlp1.10.weight");
  CHECK_THROWS_AS(Map({"vision_model.encoder.layers.0.attn.qkv.weight",
                       "vision_tower.encoder.layer.0.attention.k_proj.weight"}),
                  DataError);
}

// A query head of each of two, then key and value, for each of four key/value heads.
TEST_CASE("InternLM2's names lead to ours and back", "[models][cpu]") {
  struct Row {
    const char *theirs, *ours;
    FusedRows rows = {};
  };
  const std::vector<Row> table = {
      {"model.tok_embeddings.weight", "model.embed_tokens.weight"},
      {"model.layers.7.attention.wqkv.weight",
       "model.layers.7.self_attn.q_proj.weight",
       {0, 2, 4, 4}},
      {"model.layers.7.attention.wqkv.weight",
       "model.layers.7.self_attn.k_proj.weight",
       {2, 1, 4, 4}},
      {"model.layers.7.attention.wqkv.bias", "model.layers.7.self_attn.v_proj.bias", {3, 1, 4, 4}},
      {"model.layers.7.attention.wo.weight", "model.layers.7.self_attn.o_proj.weight"},
      {"model.layers.7.feed_forward.w1.weight", "model.layers.7.mlp.gate_proj.weight"},
      {"model.layers.7.feed_forward.w3.weight", "model.layers.7.mlp.up_proj.weight"},
      {"model.layers.7.feed_forward.w2.weight", "model.layers.7.mlp.down_proj.weight"},
      {"model.layers.7.attention_norm.weight", "model.layers.7.input_layernorm.weight"},
      {"model.layers.7.ffn_norm.weight", "model.layers.7.post_attention_layernorm.weight"},
      {"model.norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"},
  };
  for (const bool has_vision : {false, true}) {
    ModelConfig config = PresetConfig("quickstart");
    config.has_vision = has_vision;
    config.naming = WeightNaming::kOriginal;
    config.text.model_type = "internlm2";
    config.text.num_attention_heads = 8;
    config.text.num_key_value_heads = 4;
    const WeightNames names = WeightNamesOf(config);
    const std::string prefix = has_vision ? "language_model." : "";
    for (const Row& row : table) {
      INFO(row.ours);
      const FileWeight there = names.InFolder(prefix + row.ours);
      CHECK(there.name == prefix + row.theirs);
      CHECK(there.rows.first == row.rows.first);
      CHECK(there.rows.count == row.rows.count);
      CHECK(there.rows.period == row.rows.period);
      CHECK(there.rows.repeats == row.rows.repeats);
      CHECK(WeightMap({prefix + row.theirs}, names, "dir").Find(prefix + row.ours).name ==
            prefix + row.theirs);
      // Names as in Transformers are read too.
      CHECK(names.Canonical(prefix + row.ours) == prefix + row.ours);
    }
  }
}

TEST_CASE("Phi-3's fused names lead to ours and back", "[models][cpu]") {
  struct Row {
    const char *theirs, *ours;
    FusedRows rows = {};
  };
  const std::vector<Row> table = {{"self_attn.qkv_proj", "self_attn.q_proj", {0, 6, 10, 1}},
                                  {"self_attn.qkv_proj", "self_attn.k_proj", {6, 2, 10, 1}},
                                  {"self_attn.qkv_proj", "self_attn.v_proj", {8, 2, 10, 1}},
                                  {"self_attn.o_proj", "self_attn.o_proj"},
                                  {"mlp.gate_up_proj", "mlp.gate_proj", {0, 1, 2, 1}},
                                  {"mlp.gate_up_proj", "mlp.up_proj", {1, 1, 2, 1}},
                                  {"mlp.down_proj", "mlp.down_proj"}};
  for (const char* preset : {"", "quickstart", "llava1_5-7b"}) {
    INFO(preset);
    const bool alone = *preset == '\0';
    ModelConfig config = PresetConfig(alone ? "quickstart" : preset);
    config.has_vision = !alone;
    config.text.model_type = "phi3";
    config.text.num_attention_heads = 6;
    config.text.num_key_value_heads = 2;
    const WeightNames names = WeightNamesOf(config);
    const std::string prefix = alone ? "" : "language_model.";
    for (const Row& row : table) {
      INFO(row.ours);
      const std::string layer = "model.layers.11.";
      const std::string ours = prefix + layer + row.ours + ".weight";
      const std::string theirs = prefix + layer + row.theirs + ".weight";
      const FileWeight there = names.InFolder(ours);
      CHECK(there.name == theirs);
      CHECK(there.rows.first == row.rows.first);
      CHECK(there.rows.count == row.rows.count);
      CHECK(there.rows.period == row.rows.period);
      CHECK(there.rows.repeats == row.rows.repeats);
      CHECK(WeightMap({theirs}, names, "dir").Find(ours).name == theirs);
      const FileWeight module = names.ModuleInMemory(prefix + layer + row.ours);
      const std::string memory = alone ? layer : "model.language_model.layers.11.";
      CHECK(module.name == memory + row.theirs);
      CHECK(module.rows.period == row.rows.period);
      // Transformers' modules as names in a file.
      const std::string saved = module.name + ".weight";
      CHECK(WeightMap({saved}, names, "dir").Find(ours).name == saved);
    }
    if (alone) continue;
    CHECK(names.InFolder("multi_modal_projector.linear_1.bias").name ==
          "multi_modal_projector.linear_1.bias");
    CHECK(names.ModuleInMemory("multi_modal_projector.linear_1").name ==
          "model.multi_modal_projector.linear_1");
  }
}

}  // namespace
}  // namespace equipoise
