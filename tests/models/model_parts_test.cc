// Models from an encoder's folder and a language model's: what their config.json comes to.
#include "models/families/model_parts.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {
namespace {

using Catch::Contains;

// openai/clip-vit-large-patch14-336, as published: keys that have their defaults left out.
Json Clip() {
  return Json::parse(R"({"model_type": "clip", "architectures": ["CLIPModel"],
    "projection_dim": 768, "logit_scale_init_value": 2.6592, "torch_dtype": "float32",
    "text_config": {"model_type": "clip_text_model", "hidden_size": 768},
    "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
      "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14,
      "projection_dim": 768, "dropout": 0.0}})");
}

Json Siglip() {
  return Json::parse(R"({"model_type": "siglip", "text_config": {"hidden_size": 1152},
    "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
      "num_attention_heads": 16, "image_size": 384, "patch_size": 14,
      "model_type": "siglip_vision_model"}})");
}

// OpenGVLab/InternViT-300M-448px.
Json InternVit() {
  return Json::parse(R"({"model_type": "intern_vit_6b", "architectures": ["InternVisionModel"],
    "auto_map": {"AutoModel": "modeling_intern_vit.InternVisionModel"},
    "attention_dropout": 0.0, "drop_path_rate": 0.1, "dropout": 0.0, "hidden_act": "gelu",
    "hidden_size": 1024, "image_size": 448, "initializer_factor": 1.0,
    "initializer_range": 0.02, "intermediate_size": 4096, "layer_norm_eps": 1e-06,
    "norm_type": "layer_norm", "num_attention_heads": 16, "num_channels": 3,
    "num_hidden_layers": 24, "patch_size": 14, "qk_normalization": false, "qkv_bias": true,
    "torch_dtype": "bfloat16", "use_bfloat16": true, "use_flash_attn": true})");
}

Json Qwen2() {
  return Json::parse(R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
    "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896,
    "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
    "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true,
    "transformers_version": "4.43.1", "use_sliding_window": false, "vocab_size": 151936})");
}

class Parts {
 public:
  Parts(const Json& vision, const Json& llm) {
    folder.Write("vision/config.json", vision.dump());
    folder.Write("llm/config.json", llm.dump());
  }
  std::string vision() const { return folder / "vision"; }
  std::string llm() const { return folder / "llm"; }
  ModelConfig Joined(JoinOptions options = {}) const {
    const DecoderPart decoder = ReadDecoderPart(llm());
    if (options.vocab_size == 0) options.vocab_size = decoder.config.text.vocab_size;
    return JoinParts(ReadEncoderPart(vision()), decoder, options);
  }
  std::string Refusal(const JoinOptions& options = {}) const {
    try {
      Joined(options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder;
};

TEST_CASE("CLIP and a language model become LLaVA-1.5", "[models][cpu]") {
  JoinOptions options;
  options.vocab_size = 151940;
  options.image_token_id = 151939;
  const Parts parts(Clip(), Qwen2());
  const ModelConfig config = parts.Joined(options);
  CHECK(config.model_type == "llava");
  CHECK(config.naming == WeightNaming::kTransformers);
  CHECK(config.vision.model_type == "clip_vision_model");
  CHECK(config.vision.hidden_act == "quick_gelu");
  CHECK(config.vision.image_size == 336);
  CHECK(config.vision.feature_layers == 23);  // the output of the last block but one
  CHECK(config.tokens_per_tile() == 576);
  CHECK(config.projector_bias);
  CHECK(config.image_token_id == 151939);
  CHECK(config.text.model_type == "qwen2");
  CHECK(config.text.vocab_size == 151940);
  CHECK(config.text.tie_word_embeddings);
  CHECK(config.text.rope_theta == 1e6);
  CHECK(ReadEncoderPart(parts.vision()).prefix == "vision_tower.");

  const Json written = ToHuggingFace(config);
  CHECK(written["architectures"] == Json({"LlavaForConditionalGeneration"}));
  CHECK(written["vision_feature_layer"] == -2);
  CHECK(written["vision_feature_select_strategy"] == "default");
  CHECK(written["text_config"]["vocab_size"] == 151940);
  CHECK_FALSE(written["text_config"].contains("architectures"));
  const ModelConfig again = ParseModelConfig(written, "written");
  CHECK(again.vision.feature_layers == 23);
  CHECK(again.text.tie_word_embeddings);

  options.feature_layer = -1;
  options.projector_bias = false;
  const ModelConfig other = parts.Joined(options);
  CHECK(other.vision.feature_layers == 24);
  CHECK_FALSE(other.projector_bias);
}

TEST_CASE("CLIP's vision model alone is read as within CLIP", "[models][cpu]") {
  Json alone = Clip()["vision_config"];
  alone["model_type"] = "clip_vision_model";
  const ModelConfig whole = Parts(Clip(), Qwen2()).Joined();
  const ModelConfig part = Parts(alone, Qwen2()).Joined();
  CHECK(ToHuggingFace(whole) == ToHuggingFace(part));
}

TEST_CASE("SigLIP gives all its rows and has a pooling head", "[models][cpu]") {
  const ModelConfig config = Parts(Siglip(), Qwen2()).Joined();
  CHECK(config.vision.feature_layers == 26);
  CHECK_FALSE(config.vision.class_token);
  CHECK(config.vision.pooling_head);
  CHECK(config.tokens_per_tile() == 27 * 27);
  CHECK(ToHuggingFace(config)["vision_feature_select_strategy"] == "full");
}

TEST_CASE("InternViT and a language model become InternVL", "[models][cpu]") {
  JoinOptions options;
  options.image_token_id = 151667;
  const Parts parts(InternVit(), Qwen2());
  const ModelConfig config = parts.Joined(options);
  CHECK(config.model_type == "internvl");
  CHECK(config.naming == WeightNaming::kTransformers);
  CHECK(config.vision.num_hidden_layers == 24);
  CHECK(config.vision.attention_bias);
  CHECK_FALSE(config.vision.use_qk_norm);
  CHECK(config.vision.layer_scale_init_value == 1.0);
  CHECK(config.vision.drop_path_rate == 0.1);
  CHECK(config.tokens_per_tile() == 256);
  CHECK(config.text.vocab_size == 151936);
  CHECK(config.text.tie_word_embeddings);
  CHECK(ReadEncoderPart(parts.vision()).prefix == "vision_model.");
  CHECK(ImageTokensOf(ReadEncoderPart(parts.vision()))[2] == "<IMG_CONTEXT>");

  // The same encoder as Transformers writes it.
  const Json written = ToHuggingFace(config);
  CHECK(written["model_type"] == "internvl");
  const Parts native(written["vision_config"], Qwen2());
  CHECK(ReadEncoderPart(native.vision()).prefix == "vision_tower.");
  CHECK(ToHuggingFace(native.Joined(options)) == written);

  options.downsample_ratio = 0.25;
  CHECK(parts.Joined(options).tokens_per_tile() == 64);
}

// internlm/internlm2-chat-1_8b, as published.
Json InternLm2() {
  return Json::parse(R"({"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"],
    "attn_implementation": "eager", "auto_map": {"AutoConfig":
      "configuration_internlm2.InternLM2Config", "AutoModelForCausalLM":
      "modeling_internlm2.InternLM2ForCausalLM"}, "bias": false, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 32768, "num_attention_heads": 16,
    "num_hidden_layers": 24, "num_key_value_heads": 8, "pad_token_id": 2, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 2.0, "type": "dynamic"}, "rope_theta": 1000000,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.33.2",
    "use_cache": true, "vocab_size": 92544})");
}

// microsoft/Phi-3-mini-4k-instruct.
Json Phi3() {
  return Json::parse(R"({"model_type": "phi3", "architectures": ["Phi3ForCausalLM"],
    "attention_bias": false, "attention_dropout": 0.0, "auto_map": {"AutoModelForCausalLM":
      "modeling_phi3.Phi3ForCausalLM"}, "bos_token_id": 1, "embd_pdrop": 0.0,
    "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 4096, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32,
    "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
    "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
    "vocab_size": 32064})");
}

TEST_CASE("InternLM2 becomes LLaMA, and is read under its own names", "[models][cpu]") {
  for (const Json& vision : {Clip(), InternVit()}) {
    const Parts parts(vision, InternLm2());
    const ModelConfig config = parts.Joined();
    CHECK(config.text.model_type == "llama");
    CHECK(config.naming == WeightNaming::kTransformers);
    const Json written = ToHuggingFace(config);
    const Json& text = written["text_config"];
    CHECK(text["model_type"] == "llama");
    CHECK(text["attention_bias"] == false);
    CHECK(text["rope_parameters"] ==
          Json({{"rope_type", "dynamic"}, {"rope_theta", 1e6}, {"factor", 2.0}}));
    for (const char* key : {"bias", "attn_implementation", "auto_map", "architectures"})
      CHECK_FALSE(text.contains(key));
    CHECK(ToHuggingFace(ParseModelConfig(written, "written")) == written);

    const WeightNames names = DecoderNames(ReadDecoderPart(parts.llm()), config);
    const std::string model = "language_model.model.";
    CHECK(names.Canonical("language_model.output.weight") == "language_model.lm_head.weight");
    CHECK(names.Canonical(model + "tok_embeddings.weight") == model + "embed_tokens.weight");
    CHECK(names.Ours(model + "layers.3.attention.wqkv.weight").size() == 3);
  }
}

TEST_CASE("Phi-3 keeps its form, window and fused weights", "[models][cpu]") {
  for (const Json& vision : {Clip(), InternVit()}) {
    const Parts parts(vision, Phi3());
    const ModelConfig config = parts.Joined();
    const Json written = ToHuggingFace(config);
    CHECK(written["text_config"]["model_type"] == "phi3");
    CHECK(written["text_config"]["sliding_window"] == 2047);
    CHECK_FALSE(written["text_config"].contains("auto_map"));
    CHECK(ToHuggingFace(ParseModelConfig(written, "written")) == written);
    const std::string layer = "language_model.model.layers.3.self_attn.";
    CHECK(WeightNamesOf(config).InFolder(layer + "k_proj.weight").name ==
          layer + "qkv_proj.weight");
    CHECK(
        DecoderNames(ReadDecoderPart(parts.llm()), config).Ours(layer + "qkv_proj.weight").size() ==
        3);
  }
}

// liuhaotian/llava-v1.5-7b, and the same with another decoder's class.
Json OwnLlava(const Json& changes = Json::object()) {
  Json json = Json::parse(R"({"_name_or_path": "llava-v1.5-7b",
    "architectures": ["LlavaLlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
    "freeze_mm_mlp_adapter": false, "freeze_mm_vision_resampler": false, "hidden_act": "silu",
    "hidden_size": 4096, "image_aspect_ratio": "pad", "initializer_range": 0.02,
    "intermediate_size": 11008, "max_length": 4096, "max_position_embeddings": 4096,
    "mm_hidden_size": 1024, "mm_projector_type": "mlp2x_gelu", "mm_resampler_type": null,
    "mm_use_im_patch_token": false, "mm_use_im_start_end": false,
    "mm_vision_select_feature": "patch", "mm_vision_select_layer": -2,
    "mm_vision_tower": "openai/clip-vit-large-patch14-336", "model_type": "llava",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "pad_token_id": 0, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.31.0",
    "tune_mm_mlp_adapter": false, "unfreeze_mm_vision_tower": false, "use_cache": true,
    "use_mm_proj": true, "vocab_size": 32000})");
  json.update(changes);
  return json;
}

TEST_CASE("a LLaVA in its own form gives a language model and a projector", "[models][cpu]") {
  const Parts parts(Clip(), OwnLlava({{"mm_vision_select_layer", -3}}));
  const DecoderPart decoder = ReadDecoderPart(parts.llm());
  REQUIRE(decoder.llava);
  CHECK(decoder.llava->encoder == "openai/clip-vit-large-patch14-336");
  ModelConfig config = parts.Joined();
  CHECK(config.vision.feature_layers == 22);
  CHECK(config.text.model_type == "llama");
  CHECK(config.text.intermediate_size == 11008);
  CHECK(config.preprocessor["do_pad"] == true);
  JoinOptions options;
  options.feature_layer = -1;
  CHECK(parts.Joined(options).vision.feature_layers == 24);
  const Json written = ToHuggingFace(config);
  CHECK(written["model_type"] == "llava");
  for (const auto& [key, value] : written["text_config"].items()) CHECK(key.find("mm_") != 0);
  CHECK(ToHuggingFace(ParseModelConfig(written, "written")) == written);

  const WeightNames names = DecoderNames(decoder, config);
  const auto ours = [&](const char* theirs) {
    return names.Canonical(std::string(kLanguageModelPrefix) + theirs);
  };
  CHECK(ours("model.mm_projector.0.weight") == "multi_modal_projector.linear_1.weight");
  CHECK(ours("model.mm_projector.2.bias") == "multi_modal_projector.linear_2.bias");
  CHECK(ours("model.layers.3.mlp.up_proj.weight") ==
        "language_model.model.layers.3.mlp.up_proj.weight");
  CHECK(ours("lm_head.weight") == "language_model.lm_head.weight");
  CHECK(ours("model.vision_tower.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight") ==
        "vision_tower.encoder.layers.0.mlp.fc1.weight");

  for (const auto& [change, family] :
       {std::pair<Json, const char*>({{"architectures", {"LlavaQwenForCausalLM"}}}, "qwen2"),
        {{{"architectures", {"LlavaMistralForCausalLM"}}}, "mistral"},
        {{{"model_type", "llava_qwen"}, {"architectures", Json::array()}}, "qwen2"}}) {
    CHECK(Parts(Clip(), OwnLlava(change)).Joined().text.model_type == family);
  }
  const ModelConfig square = Parts(Clip(), OwnLlava({{"image_aspect_ratio", "square"}})).Joined();
  CHECK_FALSE(square.preprocessor.is_object());
}

TEST_CASE("other models in LLaVA's own form are refused in one line", "[models][cpu]") {
  struct Row {
    Json change;
    std::vector<const char*> says;
  };
  const std::vector<Row> table = {
      {{{"mm_patch_merge_type", "spatial_unpad"}, {"image_aspect_ratio", "anyres"}},
       {"mm_patch_merge_type: spatial_unpad", "llava-hf"}},
      {{{"image_aspect_ratio", "anyres_max_9"}}, {"image_aspect_ratio: anyres_max_9", "llava-hf"}},
      {{{"mm_projector_type", "linear"}}, {"mm_projector_type: 'linear' is not supported"}},
      {{{"mm_projector_type", nullptr}}, {"mm_projector_type: 'linear' is not supported"}},
      {{{"mm_resampler_type", "perceiver"}}, {"mm_resampler_type: no resampler"}},
      {{{"mm_vision_select_feature", "cls_patch"}}, {"mm_vision_select_feature: 'cls_patch'"}},
      {{{"mm_vision_select_layer", 0}}, {"mm_vision_select_layer: 0"}},
      {{{"mm_vision_select_layer", -40}}, {"-40 is none of the encoder's 24 layers"}},
      {{{"mm_use_im_start_end", true}}, {"mm_use_im_start_end: true is not supported"}},
      {{{"s2", true}}, {"s2: true is not supported"}},
      {{{"architectures", {"LlavaMptForCausalLM"}}}, {"architectures: 'LlavaMptForCausalLM'"}},
      {{{"mm_hidden_size", 1152}}, {"rows of 1024", "rows of 1152", "openai/clip-vit-large"}},
      {{{"hidden_size", 0}}, {"model.llm: ", "hidden_size"}},
  };
  for (const Row& row : table) {
    const std::string said = Parts(Clip(), OwnLlava(row.change)).Refusal();
    for (const char* words : row.says) CHECK_THAT(said, Contains(words));
    CHECK(said.find('\n') == std::string::npos);
  }
  CHECK_THAT(Parts(InternVit(), OwnLlava()).Refusal(), Contains("is an InternViT"));
  CHECK_THROWS_WITH(ParseModelConfig(OwnLlava(), "c"),
                    Contains("model.llm") && Contains("openai/clip-vit-large-patch14-336") &&
                        Contains("llava-hf/llava-1.5-7b-hf"));
}

TEST_CASE("the layers of a joined model are those of its form", "[models][cpu]") {
  const auto names = [](const ModelConfig& config) {
    std::vector<std::string> names;
    for (const LayerSpec& layer : LayerSpecs(config)) {
      for (const TensorSpec& tensor : layer.parameters) names.push_back(tensor.name);
    }
    return names;
  };
  for (const Json& vision : {Clip(), Siglip(), InternVit()}) {
    size_t encoder = 0, projector = 0, decoder = 0;
    const std::vector<std::string> all = names(Parts(vision, Qwen2()).Joined());
    for (const std::string& name : all) {
      encoder += name.starts_with(kVisionTower) ? 1 : 0;
      projector += name.starts_with("multi_modal_projector.") ? 1 : 0;
      decoder += name.starts_with(kLanguageModelPrefix) ? 1 : 0;
    }
    CHECK(encoder > 0);
    CHECK(projector >= 4);
    CHECK(decoder > 0);
    CHECK(encoder + projector + decoder == all.size());
  }
}

TEST_CASE("parts that cannot be joined are refused in one line", "[models][cpu]") {
  const auto with = [](Json json, const char* key, const Json& value) {
    json[key] = value;
    return json;
  };
  Json sized = Clip();
  sized["vision_config"]["patch_size"] = 0;
  Json llava = {{"model_type", "llava"},
                {"vision_config", Clip()["vision_config"]},
                {"text_config", Qwen2()},
                {"vision_feature_layer", -2}};
  struct Row {
    Json vision, llm;
    const char* says;
  };
  const std::vector<Row> table = {
      {Qwen2(), Qwen2(), "'qwen2' is no image encoder that a model can be joined of; give"},
      {llava, Qwen2(), "'llava' is no image encoder"},
      {Clip(), llava, "'llava' has an image encoder already; give it as model.hf"},
      {Clip(), Clip(), "model.llm: "},
      {Clip(), with(Qwen2(), "model_type", "qwen2_moe"), "'qwen2_moe' is not supported"},
      {Clip(), with(Qwen2(), "model_type", "internlm3"), "'internlm3' is not supported"},
      {Clip(), with(Qwen2(), "quantization_config", Json::object()), "quantised weights"},
      {with(Clip(), "quantization_config", Json::object()), Qwen2(), "quantised weights"},
      {with(Clip(), "vision_config", nullptr), Qwen2(), "vision_config: missing"},
      {with(Clip(), "architectures", {"EvaCLIPModel"}), Qwen2(),
       "architectures: EvaCLIPModel is another model than those of CLIP; give a folder of"},
      {sized, Qwen2(), "vision_config: patch_size: 0 is not between"},
      {with(InternVit(), "hidden_act", "relu"), Qwen2(), "hidden_act: 'relu' is not supported"},
      {with(with(InternVit(), "qk_normalization", true), "layer_norm_eps", 1e-5), Qwen2(),
       "layer_norm_eps: 1e-05 is not supported"},
      {Json::array(), Qwen2(), "not a JSON object"},
  };
  for (const Row& row : table) {
    const std::string said = Parts(row.vision, row.llm).Refusal();
    CHECK_THAT(said, Contains(row.says));
    CHECK(said.find('\n') == std::string::npos);
  }

  const Parts clip(Clip(), Qwen2()), internvit(InternVit(), Qwen2());
  JoinOptions options;
  options.feature_layer = -25;
  CHECK(clip.Refusal(options) ==
        "model.projector.feature_layer: -25 is none of the encoder's 24 layers");
  options.feature_layer = -2;
  CHECK(clip.Refusal(options).empty());
  CHECK_THAT(internvit.Refusal(options), Contains("feature_layer: -2 is not supported"));
  options = {};
  options.downsample_ratio = 0.5;
  CHECK(internvit.Refusal(options).empty());
  CHECK_THAT(clip.Refusal(options), Contains("downsample_ratio: is of InternViT"));
  options.downsample_ratio = 0.3;
  CHECK_THAT(internvit.Refusal(options), Contains("downsample_ratio: must be 1/n"));
  options = {};
  options.projector_bias = false;
  CHECK_THAT(internvit.Refusal(options), Contains("model.projector.bias: false"));

  CHECK_THROWS_WITH(ReadEncoderPart(clip.folder / "none"),
                    Contains("model.vision: ") && Contains("no such folder"));
  CHECK_THROWS_WITH(ReadDecoderPart(clip.folder.path()),
                    Contains("model.llm: ") && Contains("has no config.json"));
}

}  // namespace
}  // namespace equipoise
