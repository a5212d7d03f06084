// Folders of Qwen2-VL and Qwen2.5-VL: the forms of config.json, names of weights, pictures.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/models/config_json.h"

namespace equipoise {
namespace {

using Catch::Contains;
using testing::Refusal;

// As published: the language model's keys lie beside the others.
Json Published() {
  return Json::parse(R"({
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "vision_start_token_id": 151652,
    "vision_end_token_id": 151653, "image_token_id": 151655, "video_token_id": 151656,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 128000, "max_window_layers": 70,
    "model_type": "qwen2_5_vl", "num_attention_heads": 16, "num_hidden_layers": 36,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.41.2", "use_cache": true, "use_sliding_window": false,
    "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280,
      "intermediate_size": 3420, "num_heads": 16, "in_chans": 3, "out_hidden_size": 2048,
      "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "window_size": 112,
      "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2, "temporal_patch_size": 2},
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 151936})");
}

class Folder {
 public:
  explicit Folder(const Json& config)
      : path_(std::filesystem::temp_directory_path() / ("qwen_vl_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
    Write("config.json", config.dump());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST_CASE("a published folder of Qwen2.5-VL is its preset", "[models][cpu]") {
  const ModelConfig config = ParseModelConfig(Published(), "config.json");
  const ModelConfig preset = PresetConfig("qwen2_5_vl-3b");
  const std::vector<LayerSpec> ours = LayerSpecs(config), theirs = LayerSpecs(preset);
  REQUIRE(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    CHECK(ours[i].shape == theirs[i].shape);
    CHECK(ours[i].parameter_count() == theirs[i].parameter_count());
  }
  CHECK(config.text.rms_norm_eps == preset.text.rms_norm_eps);
  CHECK(config.text.mrope_section == std::vector<int64_t>{16, 24, 24});
  CHECK(config.text.rope_theta == 1e6);
  CHECK(config.text.tie_word_embeddings);
  CHECK(config.image_token_id == preset.image_token_id);
  // Training changes nothing in it but the dtype.
  Json expected = Published();
  expected["torch_dtype"] = "float32";
  CHECK(ToHuggingFace(config) == expected);
}

TEST_CASE("only blocks that the configuration names see a whole picture", "[models][cpu]") {
  for (const LayerSpec& layer : LayerSpecs(PresetConfig("qwen2_5_vl-7b"))) {
    if (layer.kind != "vision_block") continue;
    const bool whole = layer.index % 8 == 7;
    CHECK((layer.attention.attention_flops_per_patch_pair > 0) == whole);
    CHECK((layer.attention.attention_flops_per_window_pair > 0) == !whole);
  }
  for (const LayerSpec& layer : LayerSpecs(PresetConfig("qwen2_vl-7b"))) {
    CHECK(layer.attention.attention_flops_per_window_pair == 0);
  }
}

TEST_CASE("presets of Qwen-VL are written and read", "[models][cpu]") {
  for (const char* name : {"qwen2_vl-2b", "qwen2_vl-72b", "qwen2_5_vl-32b"}) {
    const Json once = ToHuggingFace(PresetConfig(name));
    INFO(name);
    const ModelConfig again = ParseModelConfig(once, "config.json");
    CHECK(ToHuggingFace(again) == once);
    CHECK(again.text.mrope_section == std::vector<int64_t>{16, 24, 24});
    CHECK(again.vision.intermediate_size == PresetConfig(name).vision.intermediate_size);
    CHECK(again.vision.window_size == PresetConfig(name).vision.window_size);
  }
}

TEST_CASE("weights are found in both namings, and exported in their own", "[models][cpu]") {
  Json json = Published();
  for (const bool modules : {false, true}) {
    const std::string visual = modules ? "model.visual." : "visual.";
    const std::string text = modules ? "model.language_model." : "model.";
    const Folder folder(json);
    folder.Write("model.safetensors.index.json",
                 R"({"weight_map": {")" + visual + R"(merger.ln_q.weight": "a"}})");
    const ModelConfig config = ReadModelConfig(folder.path());
    const WeightNames names = WeightNamesOf(config);
    for (const auto& [ours, theirs] : std::vector<std::pair<std::string, std::string>>{
             {"visual.patch_embed.proj.weight", visual + "patch_embed.proj.weight"},
             {"visual.blocks.3.norm2.weight", visual + "blocks.3.norm2.weight"},
             {"visual.blocks.31.mlp.up_proj.bias", visual + "blocks.31.mlp.up_proj.bias"},
             {"visual.merger.mlp.2.bias", visual + "merger.mlp.2.bias"},
             {"language_model.model.layers.7.mlp.up_proj.weight",
              text + "layers.7.mlp.up_proj.weight"},
             {"language_model.model.norm.weight", text + "norm.weight"},
             {"language_model.model.embed_tokens.weight", text + "embed_tokens.weight"},
             {"language_model.lm_head.weight", "lm_head.weight"}}) {
      INFO(theirs);
      CHECK(names.Canonical(theirs) == ours);
      CHECK(names.InFolder(ours).name == theirs);
    }
    const std::string fused = visual + "blocks.3.attn.qkv.weight";
    const auto held = names.Ours(fused);
    REQUIRE(held.size() == 3);
    CHECK(held[1].name == "visual.blocks.3.attn.k_proj.weight");
    CHECK(names.InFolder("visual.blocks.3.attn.v_proj.weight").name == fused);
    CHECK(names.InFolder("visual.blocks.3.attn.v_proj.weight").rows.first == 2);
    // The config.json of a run tells the naming where no weights lie beside it.
    const ModelConfig again = ParseModelConfig(ToHuggingFace(config), "config.json");
    CHECK(again.naming == config.naming);
    CHECK((again.naming == WeightNaming::kModules) == modules);
  }
}

TEST_CASE("Qwen-VL's pictures are those of the folder's image processor", "[models][cpu]") {
  const Folder folder(Published());
  const auto images = [&](const std::string& settings) {
    folder.Write("preprocessor_config.json", settings);
    return ImageSpecOf(ReadModelConfig(folder.path()));
  };
  const ImageSpec own = ImageSpecOf(ReadModelConfig(folder.path()));
  CHECK(own.min_pixels == 56 * 56);
  CHECK(own.max_pixels == 28 * 28 * 1280);
  CHECK(own.window == 8);
  CHECK(own.patch_numbers() == 1176);
  const ImageSpec older = images(R"({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14,
      "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.1, 0.2, 0.3],
      "image_processor_type": "Qwen2VLImageProcessor"})");
  CHECK(older.max_pixels == 12845056);
  CHECK(older.mean[0] == 0.1F);
  const ImageSpec newer = images(R"({"image_processor_type": "Qwen2VLImageProcessor",
      "size": {"shortest_edge": 4000, "longest_edge": 9000}})");
  CHECK(newer.min_pixels == 4000);
  CHECK(newer.max_pixels == 9000);
  const std::string type = R"({"image_processor_type": "Qwen2VLImageProcessor", )";
  for (const auto& [settings, what] : std::vector<std::pair<std::string, std::string>>{
           {R"("do_resize": false})", "do_resize: false is not supported"},
           {R"("merge_size": 3})", "merge_size: 3 is not the encoder's spatial_merge_size, 2"},
           {R"("min_pixels": 9000, "max_pixels": 8000})", "max_pixels: 8000 is below"},
           {R"("max_pixels": 100, "min_pixels": 50})", "max_pixels: 100 is below"},
           {R"("min_pixels": 0})", "min_pixels: must be above 0"},
           {R"("image_std": [0, 1, 1]})", "image_std: must be above 0"}}) {
    CHECK_THROWS_WITH(images(type + settings), Contains(what));
  }
}

TEST_CASE("Qwen-VL's videos are those of the folder's video processor", "[models][cpu]") {
  const Folder folder(Published());
  const auto videos = [&](const char* name, const std::string& settings) {
    folder.Write(name, settings);
    return ImageSpecOf(ReadModelConfig(folder.path())).videos;
  };
  const ImageSpec::Videos own = ImageSpecOf(ReadModelConfig(folder.path())).videos;
  CHECK(own.min_pixels == 128 * 28 * 28);
  CHECK(own.max_pixels == 768 * 28 * 28);
  CHECK(own.positions_per_second == 2);
  CHECK_FALSE(own.of_all_frames);
  CHECK_FALSE(own.timestamps);
  // Each file counts in place of those before it.
  CHECK(videos("preprocessor_config.json", R"({"min_pixels": 3136, "max_pixels": 200000,
      "image_processor_type": "Qwen2VLImageProcessor"})")
            .max_pixels == 200000);
  CHECK(videos("video_preprocessor_config.json",
               R"({"size": {"shortest_edge": 4000, "longest_edge": 9000}})")
            .max_pixels == 9000);
  CHECK(videos("processor_config.json",
               R"({"video_processor": {"size": {"shortest_edge": 5000, "longest_edge": 8000}}})")
            .min_pixels == 5000);
  CHECK(own.capped_tokens == 0);
  CHECK(videos("processor_config.json", R"({"video_processor": {"cap_pixels_per_frame": true}})")
            .capped_tokens == 128'000);
  for (const auto& [settings, what] : std::vector<std::pair<std::string, std::string>>{
           {R"("cap_pixels_per_frame": true, "max_video_tokens": 0)", "max_video_tokens: must be"},
           {R"("temporal_patch_size": 1)", "temporal_patch_size: 1 is not the encoder's"},
           {R"("image_mean": [0.5, 0.5, 0.5])", "are not those of the image processor"},
           {R"("size": {"shortest_edge": 9, "longest_edge": 8})", "size: 9 to 8 pixels"}}) {
    const std::string json = "{\"video_processor\": {" + settings + "}}";
    CHECK_THROWS_WITH(videos("processor_config.json", json),
                      Contains("video processor: ") && Contains(what));
  }
}

TEST_CASE("impossible and unsupported configurations of Qwen-VL are refused", "[models][cpu]") {
  struct Row {
    const char* key;
    Json value;
    const char* what;
  };
  for (const Row& row :
       {Row{"/rope_scaling/mrope_section", Json({16, 24}), "mrope_section: must add up to half"},
        Row{"/rope_scaling/mrope_section", 3, "mrope_section: not a list"},
        Row{"/vision_config/out_hidden_size", 1024, "out_hidden_size: is not the hidden_size"},
        Row{"/vision_config/num_heads", 3, "a head's size must be a multiple of 4"},
        Row{"/vision_config/window_size", 20, "window_size: 20 is less than the 28 pixels"},
        Row{"/vision_config/in_chans", 1, "only 3, RGB"},
        Row{"/vision_config/hidden_act", "gelu", "hidden_act"},
        Row{"/vision_config/fullatt_block_indexes", Json({-1}), "fullatt_block_indexes"},
        Row{"/vision_config", nullptr, "vision_config"},
        Row{"/image_token_id", 151936, "image_token_id: 151936 is outside"},
        Row{"/rope_scaling/type", "su", "rope_type"}}) {
    Json json = Published();
    json[Json::json_pointer(row.key)] = row.value;
    INFO(row.key);
    CHECK_THAT(Refusal(json), Contains(row.what));
  }
}

}  // namespace
}  // namespace equipoise
