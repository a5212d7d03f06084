#include "models/spec/model_config.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "tests/models/config_json.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using testing::InternVl;
using testing::Llama;
using testing::Llava;
using testing::OpenGvLab;
using testing::Qwen2;
using testing::Refusal;

TEST_CASE("a configuration of Transformers 5 is read", "[models][cpu]") {
  const ModelConfig config = ParseModelConfig(Qwen2(), "config.json");
  CHECK_FALSE(config.has_vision);
  CHECK(config.text.head_dim == 16);
  CHECK(config.text.num_key_value_heads == 2);
  CHECK(config.text.rope_theta == 1e6);
  CHECK(config.text.attention_bias);
  CHECK(config.text.tie_word_embeddings);
  CHECK(config.text.eos_token_id == 2);
  CHECK(config.text.bos_token_id == -1);
}

TEST_CASE("a configuration of Transformers 4 is read", "[models][cpu]") {
  const ModelConfig config = ParseModelConfig(Llama(), "config.json");
  CHECK(config.text.num_key_value_heads == 4);
  CHECK(config.text.rope_theta == 5e5);
  CHECK(config.text.rope_type == "llama3");
  CHECK(config.text.rope_factor == 8);
  CHECK(config.text.rope_original_max_position_embeddings == 64);
  CHECK_FALSE(config.text.attention_bias);
  CHECK(config.text.mlp_bias);
  CHECK_FALSE(config.text.tie_word_embeddings);
}

TEST_CASE("Qwen3 has norms of q and k, a head_dim of its own and no biases", "[models][cpu]") {
  Json json = Qwen2();
  json["model_type"] = "qwen3";
  const ModelConfig config = ParseModelConfig(json, "config.json");
  CHECK(config.text.use_qk_norm);
  CHECK(config.text.head_dim == 128);
  CHECK_FALSE(config.text.attention_bias);
  CHECK_FALSE(config.text.attention_output_bias);
  json["head_dim"] = 32;
  json["attention_bias"] = true;
  const Json written = ToHuggingFace(ParseModelConfig(json, "config.json"));
  CHECK(written["architectures"] == Json({"Qwen3ForCausalLM"}));
  CHECK(written["head_dim"] == 32);
  CHECK(ParseModelConfig(written, "c").text.attention_output_bias);
}

TEST_CASE("LLaVA takes the rows of one of the encoder's layers", "[models][cpu]") {
  Json json = Llava();
  ModelConfig config = ParseModelConfig(json, "config.json");
  CHECK(config.vision.class_token);
  CHECK(config.vision.feature_layers == 2);
  CHECK(config.vision.hidden_act == "quick_gelu");
  CHECK(config.tokens_per_tile() == 16);
  CHECK(config.image_token_id == 310);
  CHECK(config.text.mlp_bias);
  const Json once = ToHuggingFace(config);
  CHECK(once["architectures"] == Json({"LlavaForConditionalGeneration"}));
  CHECK(once["vision_feature_layer"] == -2);
  CHECK(once["vision_config"]["projection_dim"] == 32);
  CHECK(ToHuggingFace(ParseModelConfig(once, "c")) == once);
  json["vision_feature_layer"] = 1;
  CHECK(ParseModelConfig(json, "c").vision.feature_layers == 1);

  // A weight that is not computed with is not trained, and is there to be saved again.
  int64_t unused = 0;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    CHECK(IsTrained(spec, {}) != spec.unused);
    if (spec.unused) unused += spec.parameter_count();
  }
  CHECK(unused == 4 * (48 * 48 + 48) + 2 * 48 * 96 + 96 + 48 + 3 * 2 * 48);

  const ImageSpec images = ImageSpecOf(config);
  CHECK(images.fit == ImageSpec::Fit::kPad);
  CHECK(images.LoadOfTiles(1) == PictureLoad{17, 17.0 * 17, 16});
}

TEST_CASE("LLaVA with SigLIP has no class token", "[models][cpu]") {
  Json json = Llava();
  json["text_config"] = Qwen2();
  json["vision_config"]["model_type"] = "siglip_vision_model";
  json["vision_config"]["vision_use_head"] = false;
  CHECK_THAT(Refusal(json), Contains("vision_feature_select_strategy: missing"));
  json["vision_feature_select_strategy"] = "full";
  const ModelConfig config = ParseModelConfig(json, "config.json");
  CHECK_FALSE(config.vision.class_token);
  CHECK(config.vision.hidden_act == "gelu_pytorch_tanh");
  CHECK(config.vision.layer_norm_eps == 1e-6);
  CHECK(config.text.tie_word_embeddings);  // either key ties the head
  CHECK(ImageSpecOf(config).fit == ImageSpec::Fit::kStretch);
  CHECK(ImageSpecOf(config).LoadOfTiles(1) == PictureLoad{16, 16.0 * 16, 16});
  const Json once = ToHuggingFace(config);
  CHECK(once["vision_config"]["vision_use_head"] == false);
  CHECK(ToHuggingFace(ParseModelConfig(once, "c")) == once);
}

TEST_CASE("sizes that LLaVA's section of its language model leaves out are Transformers'",
          "[models][cpu]") {
  struct Row {
    const char* type;
    int64_t hidden, intermediate, layers, heads, kv_heads, vocab;
  };
  for (const Row& row : {Row{"llama", 4096, 11008, 32, 32, 32, 32000},
                         {"mistral", 4096, 14336, 32, 32, 8, 32000},
                         {"qwen2", 4096, 22016, 32, 32, 32, 151936},
                         {"qwen3", 4096, 22016, 32, 32, 32, 151936},
                         {"phi3", 3072, 8192, 32, 32, 32, 32064}}) {
    CAPTURE(row.type);
    Json json = Llava();
    json["text_config"] = {{"model_type", row.type}};
    const TextConfig text = ParseModelConfig(json, "config.json").text;
    CHECK(text.hidden_size == row.hidden);
    CHECK(text.intermediate_size == row.intermediate);
    CHECK(text.num_hidden_layers == row.layers);
    CHECK(text.num_attention_heads == row.heads);
    CHECK(text.num_key_value_heads == row.kv_heads);
    CHECK(text.vocab_size == row.vocab);
  }
  Json json = Llava();
  json["text_config"] = {
      {"model_type", "qwen2"}, {"hidden_size", 896}, {"num_attention_heads", 14}};
  json["text_config"]["num_key_value_heads"] = nullptr;  // as many as heads
  CHECK(ParseModelConfig(json, "config.json").text.num_key_value_heads == 14);
  json["text_config"] = {{"vocab_size", 32064}};  // LLaMA's
  CHECK(ParseModelConfig(json, "config.json").text.vocab_size == 32064);
  json = Qwen2();
  json.erase("hidden_size");  // a language model's own folder has its sizes, as InternVL's have
  CHECK_THAT(Refusal(json), Contains("hidden_size"));
  json["vocab_size"] = 1000;
  const Json section = json;
  json = {{"model_type", "internvl"}, {"vision_config", {{"model_type", "internvl_vision"}}}};
  json["image_token_id"] = 310, json["text_config"] = section;
  CHECK_THAT(Refusal(json), Contains("text_config") && Contains("hidden_size"));
}

TEST_CASE("what LLaVA does not support is refused by its key", "[models][cpu]") {
  const auto refusal = [](const char* key, const Json& value, const char* section = nullptr) {
    Json json = Llava();
    (section == nullptr ? json : json[section])[key] = value;
    return Refusal(json);
  };
  CHECK_THAT(refusal("vision_feature_layer", {-2, -1}), Contains("vision_feature_layer: only one"));
  CHECK_THAT(refusal("vision_feature_layer", -4), Contains("none of the encoder's 3 layers"));
  CHECK_THAT(refusal("vision_feature_layer", 4), Contains("none of the encoder's 3 layers"));
  CHECK_THAT(refusal("vision_feature_select_strategy", "full"), Contains("only 'default' is"));
  CHECK_THAT(refusal("projector_hidden_act", "relu"), Contains("projector_hidden_act: 'relu'"));
  CHECK_THAT(refusal("image_token_index", 320), Contains("outside the vocabulary of 320"));
  CHECK_THAT(refusal("model_type", "vit", "vision_config"), Contains("use clip_vision_model or"));
  CHECK_THAT(refusal("hidden_act", "relu", "vision_config"), Contains("hidden_act: 'relu'"));
  CHECK_THAT(refusal("num_attention_heads", 5, "vision_config"), Contains("no multiple of 5"));
  CHECK_THAT(refusal("patch_size", 64, "vision_config"), Contains("below patch_size = 64"));
  CHECK_THAT(refusal("attention_dropout", 0.1, "vision_config"), Contains("dropout"));
}

TEST_CASE("LLaVA's original form is refused by its name", "[models][cpu]") {
  for (const auto& [type, name] : {std::pair("llava", "LlavaLlamaForCausalLM"),
                                   {"llava", "LlavaQwenForCausalLM"},
                                   {"llava_mistral", "LlavaMistralForCausalLM"},
                                   {"llava_qwen", ""}}) {
    Json json = Llama();
    json["model_type"] = type;
    json["architectures"] = {name};
    if (*name == '\0') json["mm_vision_tower"] = "openai/clip-vit-large-patch14-336";
    CHECK_THAT(Refusal(json),
               Contains("is in LLaVA's original form") && Contains("(llava-hf/llava-1.5-7b-hf, "));
  }
  Json json = Llava();
  json["architectures"] = {"LlavaForConditionalGeneration"};
  CHECK(Refusal(json).empty());
}

TEST_CASE("InternLM2's own form is read and written back", "[models][cpu]") {
  Json json = Llama();
  for (const char* key : {"mlp_bias", "attention_bias", "rope_parameters"}) json.erase(key);
  json["model_type"] = "internlm2";
  json["bias"] = false;
  json["rope_scaling"] = {{"type", "dynamic"}, {"factor", 3.0}};
  const ModelConfig config = ParseModelConfig(json, "config.json");
  CHECK(config.naming == WeightNaming::kOriginal);
  CHECK_FALSE(config.text.attention_bias);
  CHECK_FALSE(config.text.mlp_bias);
  CHECK(config.text.rope_type == "dynamic");
  CHECK(config.text.rope_factor == 3);
  const Json once = ToHuggingFace(config);
  CHECK(once["architectures"] == Json({"InternLM2ForCausalLM"}));
  CHECK(once["rope_scaling"] == Json({{"type", "dynamic"}, {"factor", 3.0}}));
  CHECK_FALSE(once.contains("rope_parameters"));
  CHECK(ToHuggingFace(ParseModelConfig(once, "c")) == once);
  json.erase("bias");  // as its code takes it then
  CHECK(ParseModelConfig(json, "c").text.attention_output_bias);
  json["rope_scaling"].erase("factor");
  CHECK_THAT(Refusal(json), Contains("factor: missing"));
  json["rope_scaling"]["factor"] = 0.5;
  CHECK_THAT(Refusal(json), Contains("factor: must be at least 1"));

  Json whole = OpenGvLab();
  whole["llm_config"]["model_type"] = "internlm2";
  whole["llm_config"].erase("rope_scaling");
  CHECK(ParseModelConfig(whole, "c").text.model_type == "internlm2");
}

TEST_CASE("InternVL's three parts are read", "[models][cpu]") {
  Json json = InternVl();
  const ModelConfig config = ParseModelConfig(json, "config.json");
  CHECK(config.has_vision);
  CHECK(config.vision.patches() == 16);
  CHECK(config.tokens_per_tile() == 4);
  CHECK(config.vision.norm_type == "rms_norm");
  CHECK(config.vision.use_qk_norm);
  CHECK(config.text.model_type == "qwen2");
  json["vision_config"]["image_size"] = 28;
  CHECK(ParseModelConfig(json, "config.json").tokens_per_tile() == 1);
}

TEST_CASE("InternVL's tied head follows the version that wrote the file", "[models][cpu]") {
  Json json = InternVl();  // text_config says true
  const auto tied = [&] { return ParseModelConfig(json, "c").text.tie_word_embeddings; };
  CHECK_FALSE(tied());  // the top level wins
  json.erase("tie_word_embeddings");
  json["text_config"]["tie_word_embeddings"] = false;
  json["transformers_version"] = "5.23.0";
  CHECK(tied());  // 5 leaves out its default
  json["transformers_version"] = "4.52.0";
  CHECK_FALSE(tied());
  json["text_config"]["tie_word_embeddings"] = true;
  CHECK(tied());
}

TEST_CASE("what is written is read back as the same model", "[models][cpu]") {
  for (const Json& json : {Qwen2(), Llama(), InternVl()}) {
    const Json once = ToHuggingFace(ParseModelConfig(json, "config.json"));
    const Json twice = ToHuggingFace(ParseModelConfig(once, "config.json"));
    INFO(once.dump(1));
    CHECK(once == twice);
    CHECK(once["dtype"] == "float32");
  }
  const Json llama = ToHuggingFace(ParseModelConfig(Llama(), "config.json"));
  CHECK(llama["rope_parameters"] == llama["rope_scaling"]);
  CHECK(llama["rope_theta"] == 5e5);
  const Json qwen2 = ToHuggingFace(ParseModelConfig(Qwen2(), "config.json"));
  CHECK(qwen2["eos_token_id"] == Json({2, 3}));  // the whole list
  const Json internvl = ToHuggingFace(ParseModelConfig(InternVl(), "config.json"));
  CHECK(internvl["image_seq_length"] == 4);
  CHECK(internvl["text_config"]["rope_parameters"]["rope_theta"] == 1e6);
}

TEST_CASE("Phi-3 is read with its defaults, and refused where it is not computed",
          "[models][cpu]") {
  Json json = Qwen2();
  json["model_type"] = "phi3";
  json.erase("rms_norm_eps");
  for (const Json& window : {Json(nullptr), Json(512), Json(2047)}) {
    json["sliding_window"] = window;
    const ModelConfig config = ParseModelConfig(json, "config.json");
    CHECK(config.naming == WeightNaming::kTransformers);
    CHECK_FALSE(config.text.attention_bias);
    CHECK(config.text.rms_norm_eps == 1e-5);
    CHECK(config.text.bos_token_id == 1);
    CHECK(config.text.eos_token_id == 2);
    const Json once = ToHuggingFace(config);
    CHECK(once["sliding_window"] == window);
    CHECK(once["architectures"] == Json({"Phi3ForCausalLM"}));
    CHECK(ToHuggingFace(ParseModelConfig(once, "c")) == once);
  }
  const auto refusal = [&](const char* key, const Json& value) {
    Json changed = json;
    changed[key] = value;
    return Refusal(changed);
  };
  CHECK_THAT(refusal("resid_pdrop", 0.1), Contains("resid_pdrop: dropout"));
  CHECK_THAT(refusal("embd_pdrop", 0.1), Contains("embd_pdrop: dropout"));
  CHECK_THAT(refusal("partial_rotary_factor", 1.5), Contains("partial_rotary_factor: must be"));
  CHECK_THAT(refusal("rope_parameters", {{"type", "dynamic"}, {"factor", 2}}),
             Contains("'dynamic' is not supported, only 'default', 'longrope' are"));
  json.erase("sliding_window");
  json.erase("pad_token_id");  // Transformers takes 32000 then
  CHECK_THAT(Refusal(json), Contains("pad_token_id: 32000 is outside the vocabulary"));

  Json whole = InternVl();
  whole["text_config"]["model_type"] = "phi3";
  const Json again = ToHuggingFace(ParseModelConfig(whole, "c"));
  CHECK(again["text_config"]["model_type"] == "phi3");
  CHECK(ToHuggingFace(ParseModelConfig(again, "c")) == again);
  whole["text_config"]["model_type"] = "internlm2";
  CHECK_THAT(Refusal(whole), Contains("'internlm2' behind an encoder"));
  whole = OpenGvLab();
  whole["llm_config"] = Qwen2();
  whole["llm_config"]["model_type"] = "phi3";
  CHECK(ParseModelConfig(whole, "c").text.model_type == "phi3");
}

TEST_CASE("OpenGVLab's own form is read and written back", "[models][cpu]") {
  const ModelConfig config = ParseModelConfig(OpenGvLab(), "config.json");
  CHECK(config.model_type == "internvl");
  CHECK(config.naming == WeightNaming::kOriginal);
  CHECK(config.vision.qk_norm_eps == config.vision.layer_norm_eps);
  CHECK(config.has_vision);
  CHECK(config.vision.norm_type == "layer_norm");
  CHECK(config.vision.attention_bias);
  CHECK_FALSE(config.vision.use_qk_norm);
  CHECK(config.vision.layer_scale_init_value == 0.25);
  CHECK(config.text.model_type == "llama");
  CHECK(config.tokens_per_tile() == 4);
  CHECK(config.image_token_id == -1);
  Json expected = OpenGvLab();
  expected["torch_dtype"] = "float32";
  CHECK(ToHuggingFace(config) == expected);

  Json json = OpenGvLab();
  for (const char* key : {"norm_type", "qk_normalization", "qkv_bias"}) {
    json["vision_config"].erase(key);
  }
  const ModelConfig large = ParseModelConfig(json, "config.json");
  CHECK(large.vision.norm_type == "rms_norm");
  CHECK(large.vision.use_qk_norm);
  CHECK_FALSE(large.vision.attention_bias);
}

TEST_CASE("OpenGVLab's code finds no adapters in what is written", "[models][cpu]") {
  Json json = OpenGvLab();
  json["use_llm_lora"] = 16;
  json["use_backbone_lora"] = 0;
  const Json written = ToHuggingFace(ParseModelConfig(json, "config.json"));
  CHECK(written["use_llm_lora"] == 0);
  CHECK(written["use_backbone_lora"] == 0);
  CHECK_FALSE(ToHuggingFace(ParseModelConfig(OpenGvLab(), "c")).contains("use_llm_lora"));
}

TEST_CASE("OpenGVLab's picture token comes from the tokenizer's files", "[models][cpu]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("opengvlab_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto token = [&] { return ReadModelConfig(folder.string()).image_token_id; };
  std::ofstream(folder / "adapter_config.json") << "{}";
  CHECK_THROWS_WITH(token(), Contains("adapters of PEFT, not a model"));
  std::ofstream(folder / "config.json") << OpenGvLab().dump();
  CHECK(token() == -1);
  std::ofstream(folder / "tokenizer.json") << R"({"added_tokens": [{"id": 1, "content": "<img>"},
                              {"id": 7, "content": "<IMG_CONTEXT>"}]})";
  CHECK(token() == 7);
  std::ofstream(folder / "added_tokens.json") << R"({"<img>": 2, "<IMG_CONTEXT>": 8})";
  CHECK(token() == 7);  // where both are there, the tokenizer is read from the first
  std::filesystem::remove(folder / "tokenizer.json");
  CHECK(token() == 8);
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"added_tokens_decoder": {"6": {"content": "<IMG_CONTEXT>"}}})";
  CHECK(token() == 6);
  std::filesystem::remove(folder / "tokenizer_config.json");
  std::ofstream(folder / "added_tokens.json") << R"({"<IMG_CONTEXT>": 320})";
  CHECK_THROWS_AS(token(), DataError);
  Json json = OpenGvLab();
  json["image_token_id"] = 9;
  std::ofstream(folder / "config.json") << json.dump();
  CHECK(token() == 9);
  std::filesystem::remove_all(folder);
}

TEST_CASE("what training does not apply is said", "[models][cpu]") {
  const auto ignored = [](const Json& json) {
    return IgnoredSettings(ParseModelConfig(json, "c"));
  };
  CHECK(ignored(OpenGvLab()).empty());
  CHECK(ParseModelConfig(OpenGvLab(), "c").vision.drop_path_rate == 0.1);
  CHECK(ignored(InternVl()).empty());
  CHECK(ignored(Qwen2()).empty());
  Json json = Qwen2();
  json["eos_token_id"] = int64_t{1} << 40;
  json["bos_token_id"] = -7;
  REQUIRE(ignored(json).size() == 2);
  CHECK(ignored(json)[0] ==
        "bos_token_id: -7 is outside the vocabulary of 320 and stands for no token");
  CHECK_THAT(ignored(json)[1], Contains("eos_token_id: 1099511627776 is outside"));
}

struct BadValue {
  const char* path;  // JSON pointer
  Json value;
  const char* expected;
};

void CheckRefusals(const Json& good, const std::vector<BadValue>& table) {
  CHECK(Refusal(good).empty());
  for (const BadValue& bad : table) {
    INFO(bad.path << " = " << bad.value);
    Json json = good;
    json[Json::json_pointer(bad.path)] = bad.value;
    CHECK_THAT(Refusal(json), Contains(bad.expected));
  }
}

TEST_CASE("what OpenGVLab's form asks for and is not supported is refused", "[models][cpu]") {
  CheckRefusals(OpenGvLab(),
                {{"/llm_config/model_type", "mixtral", "llm_config: model_type: 'mixtral'"},
                 {"/llm_config/num_key_value_heads", 3, "llm_config: num_key_value_heads"},
                 {"/llm_config", nullptr, "llm_config"},
                 {"/vision_config/model_type", "clip_vision_model", "model_type"},
                 {"/vision_config/dropout", 0.1, "dropout"},
                 {"/vision_config/attention_dropout", 0.1, "attention_dropout"},
                 {"/force_image_size", 448, "force_image_size"},
                 {"/ps_version", "v1", "ps_version"},
                 {"/select_layer", -4, "select_layer"},
                 {"/image_token_id", 320, "image_token_id"},
                 {"/image_token_id", -2, "image_token_id"}});
}

TEST_CASE("impossible and unsupported configurations are refused by key", "[models][cpu]") {
  const std::vector<BadValue> table = {
      {"/model_type", "gpt2", "model_type"},
      {"/model_type", 3, "model_type"},
      {"/quantization_config", Json::object(), "quantization_config"},
      {"/text_config", nullptr, "text_config"},
      {"/text_config", 3, "text_config"},
      {"/vision_config", nullptr, "vision_config"},
      {"/downsample_ratio", 0.0, "downsample_ratio"},
      {"/downsample_ratio", 0.3, "downsample_ratio"},
      {"/downsample_ratio", 2.0, "downsample_ratio"},
      {"/downsample_ratio", 1e-300, "downsample_ratio"},
      {"/downsample_ratio", 0.125, "downsample_ratio"},
      {"/image_token_id", 320, "image_token_id"},
      {"/image_token_id", -1, "image_token_id"},
      {"/projector_hidden_act", "relu", "projector_hidden_act"},
      {"/vision_feature_layer", -2, "vision_feature_layer"},
      {"/vision_feature_select_strategy", "full", "vision_feature_select_strategy"},
      {"/text_config/model_type", "internlm2", "model_type"},
      {"/text_config/hidden_size", 0, "hidden_size"},
      {"/text_config/hidden_size", -64, "hidden_size"},
      {"/text_config/hidden_size", 64.5, "hidden_size"},
      {"/text_config/hidden_size", "64", "hidden_size"},
      {"/text_config/hidden_size", nullptr, "hidden_size"},
      {"/text_config/hidden_size", 1LL << 40, "hidden_size"},
      {"/text_config/hidden_size", 66, "hidden_size"},
      {"/text_config/num_hidden_layers", 1000000, "num_hidden_layers"},
      {"/text_config/num_attention_heads", 0, "num_attention_heads"},
      {"/text_config/num_key_value_heads", 3, "num_key_value_heads"},
      {"/text_config/num_key_value_heads", 8, "num_key_value_heads"},
      {"/text_config/head_dim", 15, "head_dim"},
      {"/text_config/vocab_size", 0, "vocab_size"},
      {"/text_config/rms_norm_eps", 0.0, "rms_norm_eps"},
      {"/text_config/rope_parameters/rope_theta", -1.0, "rope_theta"},
      {"/text_config/rope_parameters/rope_type", "su", "rope_type"},
      {"/text_config/rope_parameters/rope_type", "yarn", "factor"},
      {"/text_config/rope_parameters/rope_type", "llama3", "factor"},
      {"/text_config/rope_parameters", 7, "rope_parameters"},
      {"/text_config/hidden_act", "gelu", "hidden_act"},
      {"/text_config/attention_dropout", 0.1, "attention_dropout"},
      {"/text_config/layer_types", Json({"sliding_attention"}), "layer_types"},
      {"/text_config/tie_word_embeddings", 1, "tie_word_embeddings"},
      {"/text_config/pad_token_id", 320, "pad_token_id: 320 is outside the vocabulary of 320"},
      {"/text_config/pad_token_id", -7, "pad_token_id"},
      {"/text_config/initializer_range", 1e300, "initializer_range: must be between 0 and 100"},
      {"/text_config/initializer_range", -0.1, "initializer_range"},
      {"/text_config/rms_norm_eps", 1e300, "rms_norm_eps"},
      {"/vision_config/num_channels", 1, "num_channels: only 3, RGB, is supported"},
      {"/vision_config/num_channels", 1024, "num_channels"},
      {"/vision_config/layer_scale_init_value", 1e308, "layer_scale_init_value"},
      {"/vision_config/initializer_range", 1e300, "initializer_range"},
      {"/vision_config/model_type", "clip_vision_model", "model_type"},
      {"/vision_config/hidden_size", 50, "hidden_size"},
      {"/vision_config/image_size", Json({56, 28}), "image_size"},
      {"/vision_config/image_size", Json({56}), "image_size"},
      {"/vision_config/image_size", 57, "image_size"},
      {"/vision_config/image_size", 7, "image_size"},
      {"/vision_config/image_size", 42, "downsample_ratio"},
      {"/vision_config/patch_size", 0, "patch_size"},
      {"/vision_config/norm_type", "batch_norm", "norm_type"},
      {"/vision_config/hidden_act", "quick_gelu", "hidden_act"},
      {"/vision_config/use_mean_pooling", false, "use_mean_pooling"},
      {"/vision_config/use_mask_token", true, "use_mask_token"},
      {"/vision_config/hidden_dropout_prob", 0.1, "hidden_dropout_prob"},
      {"/vision_config/attention_dropout", 0.1, "attention_dropout"},
      {"/vision_config/drop_path_rate", 1.0, "drop_path_rate"},
      {"/vision_config/drop_path_rate", -0.1, "drop_path_rate"},
  };
  CheckRefusals(InternVl(), table);
  CHECK_FALSE(Refusal(Json::array()).empty());
}

}  // namespace
}  // namespace equipoise
