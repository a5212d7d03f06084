// Folders of Qwen3-VL: config.json, names of weights, pictures, and where features travel.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/models/config_json.h"

namespace equipoise {
namespace {

using Catch::Contains;
using testing::Refusal;
using Numbers = std::vector<int64_t>;

// As published.
Json Published() {
  return Json::parse(R"({
    "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655,
    "model_type": "qwen3_vl", "text_config": {"attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
      "intermediate_size": 9728, "max_position_embeddings": 262144, "model_type": "qwen3_vl_text",
      "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-06, "rope_scaling": {"mrope_interleaved": true,
        "mrope_section": [24, 20, 20], "rope_type": "default"}, "rope_theta": 5000000,
      "tie_word_embeddings": true, "use_cache": true, "vocab_size": 151936},
    "tie_word_embeddings": true, "transformers_version": "4.57.0.dev0", "video_token_id": 151656,
    "vision_config": {"deepstack_visual_indexes": [5, 11, 17], "depth": 24,
      "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1024, "in_channels": 3,
      "initializer_range": 0.02, "intermediate_size": 4096, "model_type": "qwen3_vl",
      "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2560, "patch_size": 16,
      "spatial_merge_size": 2, "temporal_patch_size": 2},
    "vision_end_token_id": 151653, "vision_start_token_id": 151652})");
}

TEST_CASE("a published folder of Qwen3-VL is its preset", "[models][cpu]") {
  const ModelConfig config = ParseModelConfig(Published(), "config.json");
  const ModelConfig preset = PresetConfig("qwen3_vl-4b");
  const std::vector<LayerSpec> ours = LayerSpecs(config), theirs = LayerSpecs(preset);
  REQUIRE(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    CHECK(ours[i].shape == theirs[i].shape);
    CHECK(ours[i].parameter_count() == theirs[i].parameter_count());
  }
  CHECK(config.text.mrope_section == Numbers{24, 20, 20});
  CHECK(config.text.mrope_interleaved);
  CHECK(config.text.rope_theta == 5e6);
  CHECK(config.text.tie_word_embeddings);
  CHECK(config.text.max_position_embeddings == preset.text.max_position_embeddings);
  CHECK(config.image_token_id == preset.image_token_id);
  // Training changes nothing in it but the dtype.
  Json expected = Published();
  expected["torch_dtype"] = "float32";
  CHECK(ToHuggingFace(config) == expected);
}

TEST_CASE("features travel from their blocks to the first layers of the language model",
          "[models][cpu]") {
  LayerLoad load;
  load.patches = 40;
  load.image_tokens = 10;
  load.tokens = 25;
  int64_t features = 0;  // that the layer before gives
  for (const LayerSpec& layer : LayerSpecs(PresetConfig("qwen3_vl-2b"))) {
    INFO(layer.name);
    CHECK(layer.input.features == features);
    features = layer.output.features;
    CHECK(layer.takes_features == (layer.kind == "projector"));
    if (layer.kind == "vision_block") {
      CHECK(features == std::min<int64_t>(3, (layer.index + 1) / 6));
      CHECK(layer.output.Shape(load) == Numbers{40 * (1 + features), 1024});
    } else if (layer.kind == "projector") {
      CHECK(layer.output.Shape(load) == Numbers{4 * 10, 2048});
    } else if (layer.kind == kTokenEmbedding) {
      CHECK(layer.output.Shape(load) == Numbers{25 + 3 * 10, 2048});
      // Features are whole on each rank.
      CHECK(layer.output.Shape(load, /*ranks=*/2) == Numbers{13 + 3 * 10, 2048});
    } else if (layer.kind == kDecoderBlock) {
      CHECK(features == std::max<int64_t>(0, 2 - layer.index));
      CHECK(layer.output.Shape(load) == Numbers{25 + features * 10, 2048});
    }
  }
}

TEST_CASE("weights of Qwen3-VL have the names of the published folder", "[models][cpu]") {
  const ModelConfig config = ParseModelConfig(Published(), "config.json");
  const WeightNames names = WeightNamesOf(config);
  for (const auto& [ours, theirs] : std::vector<std::pair<std::string, std::string>>{
           {"visual.pos_embed.weight", "model.visual.pos_embed.weight"},
           {"visual.patch_embed.proj.bias", "model.visual.patch_embed.proj.bias"},
           {"visual.blocks.3.mlp.linear_fc1.bias", "model.visual.blocks.3.mlp.linear_fc1.bias"},
           {"visual.merger.linear_fc2.weight", "model.visual.merger.linear_fc2.weight"},
           {"visual.deepstack_merger_list.2.norm.weight",
            "model.visual.deepstack_merger_list.2.norm.weight"},
           {"language_model.model.layers.7.self_attn.q_norm.weight",
            "model.language_model.layers.7.self_attn.q_norm.weight"},
           {"language_model.lm_head.weight", "lm_head.weight"}}) {
    CHECK(names.Canonical(theirs) == ours);
    CHECK(names.InFolder(ours).name == theirs);
  }
  const auto held = names.Ours("model.visual.blocks.3.attn.qkv.weight");
  REQUIRE(held.size() == 3);
  CHECK(held[2].name == "visual.blocks.3.attn.v_proj.weight");
}

TEST_CASE("Qwen3-VL's pictures are between 256 and 4096 pixels a side, of patches of 16",
          "[models][cpu]") {
  const ImageSpec images = ImageSpecOf(PresetConfig("qwen3_vl-8b"));
  CHECK(images.patch_size == 16);
  CHECK(images.min_pixels == 256 * 256);
  CHECK(images.max_pixels == 4096 * 4096);
  CHECK(images.mean[1] == 0.5F);
  CHECK(images.deviation[2] == 0.5F);
  CHECK(images.patch_numbers() == 3 * 2 * 16 * 16);
}

TEST_CASE("impossible and unsupported configurations of Qwen3-VL are refused", "[models][cpu]") {
  struct Row {
    const char* key;
    Json value;
    const char* what;
  };
  for (const Row& row :
       {Row{"/vision_config/deepstack_visual_indexes", Json({5, 24}), "deepstack_visual_indexes"},
        Row{"/vision_config/deepstack_visual_indexes", Json({5, 5}), "must be ascending"},
        Row{"/vision_config/num_position_embeddings", 2300, "2300 is not a square"},
        Row{"/vision_config/hidden_act", "silu", "hidden_act"},
        Row{"/vision_config/out_hidden_size", 2048, "out_hidden_size: is not the hidden_size"},
        Row{"/text_config/num_hidden_layers", 2, "3 features for 2 layers"},
        Row{"/text_config/rope_scaling/mrope_section", Json({24, 20}), "must add up to half"},
        Row{"/model_type", "qwen3_vl_moe", "'qwen3_vl_moe' is not supported"}}) {
    Json json = Published();
    json[Json::json_pointer(row.key)] = row.value;
    INFO(row.key);
    CHECK_THAT(Refusal(json), Contains(row.what));
  }
}

}  // namespace
}  // namespace equipoise
