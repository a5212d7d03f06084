// model.vision and model.llm: the joined model's vocabulary, and settings that do not go together.
#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/tiny_tokenizer.h"
#include "trainer/settings/data_options.h"
#include "trainer/settings/model_section.h"

namespace equipoise {
namespace {

using Catch::Contains;

constexpr int64_t kTokens = 306;  // of the tiny tokenizer, which has InternVL's first three

// Folders of a CLIP encoder, an InternViT and a LLaMA.
struct Folders {
  explicit Folders(int64_t vocab_size = kTokens) {
    folder.Write("clip/config.json", R"({"model_type": "clip_vision_model", "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
      "image_size": 56, "patch_size": 14})");
    folder.Write("vit/config.json", R"({"model_type": "intern_vit_6b", "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
      "image_size": 56, "patch_size": 14, "norm_type": "layer_norm", "qkv_bias": true,
      "qk_normalization": false})");
    const Json llm = {{"model_type", "llama"},    {"hidden_size", 48},
                      {"intermediate_size", 96},  {"num_hidden_layers", 2},
                      {"num_attention_heads", 4}, {"max_position_embeddings", 512},
                      {"vocab_size", vocab_size}};
    folder.Write("llm/config.json", llm.dump());
    folder.Write("llm/tokenizer.json", TinyTokenizerJson().dump());
  }

  RunConfig Config(const std::string& vision) const {
    RunConfig config;
    config.model.vision = folder / vision;
    config.model.llm = folder / "llm";
    return config;
  }

  TemporaryFolder folder;
};

TEST_CASE("the vocabulary grows by the tokens that it has no row for", "[trainer][cpu]") {
  struct Row {
    int64_t before;
    const char* vision;
    int64_t rows, tokenizer, image_token;
  };
  // <img>, </img> and <IMG_CONTEXT> are there; <quad>, <ref>, <box> and their ends are not.
  // The last: three of its own added tokens have no row either.
  for (const Row& row : {Row{306, "clip", 307, 307, 306}, Row{307, "clip", 307, 307, 306},
                         Row{320, "clip", 320, 307, 306}, Row{306, "vit", 312, 312, 305},
                         Row{309, "vit", 312, 312, 305}, Row{303, "clip", 307, 307, 306}}) {
    CAPTURE(row.before, row.vision);
    const Folders folders(row.before);
    const RunConfig config = folders.Config(row.vision);
    const ModelConfig model = ModelConfigOf(config);
    CHECK(model.text.vocab_size == row.rows);
    CHECK(model.image_token_id == row.image_token);
    const Tokenizer tokenizer = ReadTokenizer(config, model);
    CHECK(tokenizer.vocab_size() == row.tokenizer);
    CHECK(ToHuggingFace(model)["text_config"]["vocab_size"] == row.rows);
    CHECK(NamesModel(config.model));
  }
}

TEST_CASE("settings that do not go with parts are refused in one line", "[trainer][cpu]") {
  const Folders folders;
  struct Row {
    void (*change)(RunConfig&);
    const char* says;
  };
  const std::vector<Row> table = {
      {[](RunConfig& c) { c.model.llm = ""; },
       "model.llm: is empty, and model.vision is given; a model from parts takes both"},
      {[](RunConfig& c) { c.model.vision = ""; },
       "model.vision: is empty, and model.llm is given; a model from parts takes both"},
      {[](RunConfig& c) { c.model.hf = "folder"; },
       "model.hf: folder beside model.vision and model.llm; give the one or the others"},
      {[](RunConfig& c) { c.model.preset = "quickstart"; }, "model.preset: quickstart beside"},
      {[](RunConfig& c) { c.model.adapter.targets = {"q_proj"}; },
       "model.adapter.train: the projector is new, and beside adapters it would stay as it is"},
      {[](RunConfig& c) { c.model.adapter.targets = {"all-linear"}; },
       "model.adapter.train: the projector is new, and beside adapters it would stay as it is"},
      {[](RunConfig& c) {
         c.model.freeze = {"vision", "projector"};
       },
       "model.freeze: the projector is new, and frozen it would stay as it is drawn"},
      {[](RunConfig& c) { c.model.base = "nf4"; }, "model.base: needs adapters"},
      {[](RunConfig& c) { c.model.vision += "/none"; }, "no such folder"},
      {[](RunConfig& c) { c.model = {}, c.model.hf = "/"; },
       "model.hf: /: has no config.json; give a folder of Hugging Face's form"},
      {[](RunConfig& c) { c.model.vision = c.model.llm; }, "is no image encoder"},
      {[](RunConfig& c) { c.model.llm = c.model.vision; }, "is not supported"},
      {[](RunConfig& c) {
         c.model = {}, c.model.preset = "quickstart", c.model.projector.bias = false;
       },
       "model.projector: is of a model from parts"},
  };
  for (const Row& row : table) {
    RunConfig config = folders.Config("clip");
    row.change(config);
    CHECK_THROWS_WITH(ModelConfigOf(config), Contains(row.says));
  }
  RunConfig adapted = folders.Config("clip");
  adapted.model.adapter.targets = {"q_proj"};
  adapted.model.adapter.train = {"multi_modal_projector"};
  CHECK_NOTHROW(ModelConfigOf(adapted));
  adapted.model.freeze = {"vision", "projector"};  // which keeps adapters out, and no more
  CHECK_NOTHROW(ModelConfigOf(adapted));
  adapted.model.adapter.train.clear();
  adapted.model.projector.weights = "mm_projector.bin";  // trained already
  CHECK_NOTHROW(ModelConfigOf(adapted));
  RunConfig plain;
  plain.model.preset = "quickstart";
  plain.model.base_modules = {"llm", "vision"};
  CHECK_THROWS_WITH(ModelConfigOf(plain),
                    "model.base_modules: has no effect without model.base; set model.base: nf4 or "
                    "int8, or leave it out");
  plain.model.adapter.targets = {"all-linear"};
  plain.model.base = "nf4";
  CHECK_NOTHROW(ModelConfigOf(plain));
  RunConfig config = folders.Config("clip");
  config.data.tokenizer = folders.folder / "llm";
  CHECK_THROWS_WITH(ReadTokenizer(config, {}), Contains("data.tokenizer: given beside model.llm"));
  std::filesystem::remove(folders.folder / "llm/tokenizer.json");
  CHECK_THROWS_WITH(ModelConfigOf(folders.Config("clip")),
                    Contains("has no tokenizer.json, tokenizer.model or vocab.json"));
  const Folders small(200);  // of which 264 are in the vocabulary itself
  CHECK_THROWS_WITH(ModelConfigOf(small.Config("clip")),
                    Contains("the tokenizer has ids up to 306 with 1 tokens for pictures"));
}

TEST_CASE("limits on pixels are refused where pictures or frames have one size", "[trainer][cpu]") {
  DataConfig data;
  data.video_pixels.max = 100'000;
  for (const char* name : {"llava_onevision-0.5b", "llava1_5-7b"}) {
    ModelConfig config = PresetConfig(name);
    CHECK_THROWS_AS(UsePixels(data, &config), ConfigError);
    CHECK_THROWS_WITH(UsePixels(data, &config),
                      Contains("data.video_pixels: 0 to 100000: ") && Contains("leave it out"));
    CHECK_NOTHROW(UsePixels(DataConfig(), &config));
  }
  data.pixels.max = 100'000;
  ModelConfig tiles = PresetConfig("internvl3-1b"), square = PresetConfig("llava1_5-7b");
  CHECK_THROWS_WITH(UsePixels(data, &tiles),
                    "data.pixels: 0 to 100000: this model takes pictures as tiles of one size; set "
                    "data.tiles.max, or leave it out");
  CHECK_THROWS_WITH(UsePixels(data, &square),
                    Contains("data.pixels: 0 to 100000: ") && Contains("squares of one size"));
  ModelConfig config = PresetConfig("qwen2_5_vl-3b");
  data.video_pixels.max = 200'000;
  CHECK_NOTHROW(UsePixels(data, &config));
  CHECK(config.max_video_pixels == 200'000);
}

}  // namespace
}  // namespace equipoise
