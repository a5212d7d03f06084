#include "tests/models/config_json.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "configs/base/error.h"
#include "models/families/families.h"

namespace equipoise::testing {

Json Qwen2() {
  return Json::parse(R"({
    "model_type": "qwen2", "dtype": "float32", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-06, "hidden_act": "silu",
    "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
    "tie_word_embeddings": true, "eos_token_id": [2, 3], "pad_token_id": 0})");
}

Json Llama() {
  return Json::parse(R"({
    "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 320, "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "mlp_bias": true})");
}

Json InternVl() {
  Json json = Json::parse(R"({
    "model_type": "internvl", "downsample_ratio": 0.5, "image_token_id": 310,
    "tie_word_embeddings": false,
    "vision_config": {"model_type": "internvl_vision", "hidden_size": 48, "intermediate_size": 96,
      "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": [56, 56],
      "patch_size": [14, 14], "norm_type": "rms_norm", "use_qk_norm": true,
      "attention_bias": true}})");
  json["text_config"] = Qwen2();
  return json;
}

Json Llava() {
  Json json = Json::parse(R"({
    "model_type": "llava", "image_token_index": 310, "vision_feature_layer": -2,
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 48,
      "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 56,
      "patch_size": 14, "projection_dim": 32}})");
  json["text_config"] = Llama();
  return json;
}

Json OpenGvLab() {
  Json json = Json::parse(R"({
    "model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "downsample_ratio": 0.5,
    "force_image_size": 56, "ps_version": "v2", "select_layer": -1, "torch_dtype": "bfloat16",
    "template": "internvl2_5", "auto_map": {"AutoModel": "code.InternVLChatModel"},
    "vision_config": {"model_type": "intern_vit_6b", "hidden_size": 48, "intermediate_size": 96,
      "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 56, "patch_size": 14,
      "norm_type": "layer_norm", "qk_normalization": false, "qkv_bias": true,
      "initializer_factor": 0.25, "drop_path_rate": 0.1, "dropout": 0.0}})");
  json["llm_config"] = Llama();
  return json;
}

std::string Refusal(const Json& json) {
  try {
    ParseModelConfig(json, "dir/config.json");
  } catch (const DataError& error) {
    CHECK_THAT(error.what(), Catch::Matchers::StartsWith("dir/config.json:"));
    return error.what();
  }
  return "";
}

LayerSpec ProjectorOf(const ModelConfig& config) {
  const std::vector<LayerSpec> specs = LayerSpecs(config);
  const auto projector = std::find_if(specs.begin(), specs.end(), [](const LayerSpec& spec) {
    return spec.component == Component::kConnector;
  });
  EQUIPOISE_CHECK(projector != specs.end(), config.model_type);
  return *projector;
}

}  // namespace equipoise::testing
