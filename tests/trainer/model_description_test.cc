// The files that describe a model from parts: its tokenizer in each form of the language model's
// folder, and how Transformers prepares its pictures.
#include "trainer/checkpoint/model_description.h"

#include <catch2/catch.hpp>

#include "configs/base/json.h"
#include "data/text/chat_template.h"
#include "data/text/folder_template.h"
#include "data/text/jinja_template.h"
#include "data/text/tokenizer.h"
#include "models/families/model_parts.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/tiny_tokenizer.h"
#include "tests/models/model_support.h"
#include "trainer/settings/model_section.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

constexpr char kSizes[] = R"("hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "image_size": 56, "patch_size": 14)";

struct Folders {
  Folders() {
    folder.Write("clip/config.json",
                 std::string(R"({"model_type": "clip_vision_model", )") + kSizes + "}");
    folder.Write("clip/preprocessor_config.json",
                 R"({"processor_class": "CLIPProcessor", "size": 56, "crop_size": 56,
                     "image_mean": [0.4, 0.5, 0.6], "image_std": [0.3, 0.3, 0.3]})");
    folder.Write("vit/config.json", std::string(R"({"model_type": "intern_vit_6b", "qkv_bias": true,
                     "qk_normalization": false, "norm_type": "layer_norm", )") +
                                        kSizes + "}");
    folder.Write("llm/config.json", R"({"model_type": "llama", "hidden_size": 48,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 512, "vocab_size": 306})");
    folder.Write("llm/tokenizer.json", TinyTokenizerJson().dump());
    folder.Write("llm/chat_template.jinja", "{{ messages }}");
    folder.Write("llm/model.safetensors", "weights");
  }

  // Writes the description of the model to `out`; gives the tokenizer that it stands for.
  Tokenizer Describe(const char* vision) const {
    RunConfig config;
    config.model.vision = folder / vision;
    config.model.llm = folder / "llm";
    const ModelConfig model = ModelConfigOf(config);
    WritePartsDescription(config.model, model, folder / "out");
    return Tokenizer::Read(folder / "llm", ImageTokensOf(ReadEncoderPart(config.model.vision)));
  }
  Json Read(const char* name) const { return ReadJsonFile(folder / ("out/" + std::string(name))); }

  TemporaryFolder folder;
};

void CheckSame(const Tokenizer& written, const Tokenizer& wanted) {
  CHECK(written.vocab_size() == wanted.vocab_size());
  for (const char* text : {"hello<image>\naa<img><IMG_CONTEXT></img>", "<ref>hello</ref><box>"})
    CHECK(written.Encode(text, true) == wanted.Encode(text, true));
}

TEST_CASE("a written tokenizer has the added tokens, whatever files list them", "[trainer][cpu]") {
  const Folders folders;
  for (const char* vision : {"clip", "vit"}) {
    const Tokenizer wanted = folders.Describe(vision);
    CheckSame(Tokenizer::Read(folders.folder / "out"), wanted);
  }
  CHECK_FALSE(std::filesystem::exists(folders.folder / "out/model.safetensors"));
  CHECK(std::filesystem::exists(folders.folder / "out/chat_template.jinja"));
  std::filesystem::remove_all(folders.folder / "out");
  folders.Describe("clip");
  CHECK_FALSE(std::filesystem::exists(folders.folder / "out/tokenizer_config.json"));

  folders.folder.Write("llm/tokenizer_config.json",
                       R"({"model_max_length": 512, "added_tokens_decoder":
                           {"300": {"content": "<|endoftext|>", "special": true}}})");
  folders.folder.Write("llm/added_tokens.json", R"({"<|endoftext|>": 300})");
  folders.Describe("clip");
  const Json config = folders.Read("tokenizer_config.json");
  CHECK(config["model_max_length"] == 512);
  CHECK(config["added_tokens_decoder"].size() == 2);
  CHECK(config["added_tokens_decoder"]["306"]["content"] == "<image>");
  CHECK(config["added_tokens_decoder"]["306"]["special"] == true);
  CHECK(folders.Read("added_tokens.json") == Json({{"<|endoftext|>", 300}, {"<image>", 306}}));
}

TEST_CASE("a chat template takes the place of the folder's", "[trainer][cpu]") {
  const Folders folders;
  folders.folder.Write("llm/tokenizer_config.json",
                       R"({"chat_template": "{{ messages }}", "model_max_length": 512})");
  for (const char* name : {"llm/chat_template.json", "llm/processor_config.json"})
    folders.folder.Write(name, R"({"chat_template": "{{ messages }}"})");
  for (const auto& [vision, picture] : {std::pair("clip", "<image>"), {"vit", "<IMG_CONTEXT>"}}) {
    const Tokenizer tokenizer = folders.Describe(vision);
    const std::string out = folders.folder / "out";
    CHECK_FALSE(HasWrittenChatTemplate(out));
    const ChatTemplate chat("chatml", "", &tokenizer, *tokenizer.TokenId(picture));
    WriteChatTemplate(chat, out);
    CHECK(HasWrittenChatTemplate(out));
    CHECK(ReadWholeFile(out + "/chat_template.jinja") == chat.Jinja());
    CHECK_THAT(chat.Jinja(), Contains(std::string("'") + picture + "\\n'"));
    CHECK(FolderTemplate(out)->name == "chatml");
    CHECK(SystemOfJinjaTemplate(FolderJinja(out)) == "");
    for (const std::string system : {"It's \\ a \"größer\"\n{{ text }}", "\\n'", "\n"}) {
      WriteChatTemplate(ChatTemplate("chatml", system, &tokenizer), out);
      CHECK(SystemOfJinjaTemplate(FolderJinja(out)) == system);
    }
    CHECK_FALSE(SystemOfJinjaTemplate("{%- set system = 'not ours' -%}"));
    CHECK_FALSE(folders.Read("tokenizer_config.json").contains("chat_template"));
    CHECK(folders.Read("tokenizer_config.json")["model_max_length"] == 512);
    CHECK_FALSE(folders.Read("processor_config.json").contains("chat_template"));
    CHECK_FALSE(std::filesystem::exists(out + "/chat_template.json"));
  }
}

TEST_CASE("a run's tiles and pixels take the place of the folder's", "[trainer][cpu]") {
  const TemporaryFolder folder;
  const auto read = [&](const char* name) { return ReadJsonFile(folder / name); };
  DataConfig data;
  data.tiles = {2, 5, false};
  const ModelConfig tiles = testing::TinyInternVl(/*large_form=*/false);
  WriteImageProcessor(tiles, data, folder.path());  // a whole file, where there is none
  CHECK(read("preprocessor_config.json")["min_patches"] == 2);
  CHECK(read("preprocessor_config.json")["max_patches"] == 5);
  CHECK(read("preprocessor_config.json")["image_processor_type"] == "GotOcr2ImageProcessorFast");
  folder.Write("preprocessor_config.json", R"({"max_patches": 12, "size": 1})");
  WriteImageProcessor(tiles, data, folder.path());
  CHECK(read("preprocessor_config.json") ==
        Json({{"max_patches", 5}, {"min_patches", 2}, {"crop_to_patches", true}, {"size", 1}}));
  folder.Write("processor_config.json", R"({"a": 1, "image_processor": {"max_patches": 12}})");
  WriteImageProcessor(tiles, data, folder.path());  // both: version 5 reads this one first
  CHECK(read("processor_config.json")["image_processor"]["max_patches"] == 5);
  CHECK(read("preprocessor_config.json")["max_patches"] == 5);
  std::filesystem::remove(folder / "preprocessor_config.json");
  folder.Write("processor_config.json", R"({"a": 1, "image_processor": {"max_patches": 12}})");
  WriteImageProcessor(tiles, data, folder.path());
  CHECK(read("processor_config.json")["image_processor"]["max_patches"] == 5);
  CHECK(read("processor_config.json")["a"] == 1);
  CHECK_FALSE(std::filesystem::exists(folder / "preprocessor_config.json"));

  std::filesystem::remove(folder / "processor_config.json");
  ModelConfig pixels = testing::TinyQwenVl(/*windows=*/false);
  pixels.preprocessor = {{"size", {{"shortest_edge", 1}, {"longest_edge", 4000}}},
                         {"max_pixels", 4000}};
  WriteImageProcessor(pixels, data, folder.path());
  CHECK_FALSE(std::filesystem::exists(folder / "preprocessor_config.json"));  // none are given
  data.pixels = {9408, 12544};
  data.video_pixels.max = 777;
  WriteImageProcessor(pixels, data, folder.path());
  CHECK(
      read("preprocessor_config.json") ==
      Json({{"size", {{"shortest_edge", 9408}, {"longest_edge", 12544}}}, {"max_pixels", 12544}}));
  CHECK_FALSE(std::filesystem::exists(folder / "video_preprocessor_config.json"));
  std::filesystem::remove(folder / "preprocessor_config.json");
  pixels.preprocessor = {{"min_pixels", 1}};
  pixels.video_preprocessor = {{"size", {{"longest_edge", 200000}}}};
  WriteImageProcessor(pixels, data, folder.path());
  CHECK(read("preprocessor_config.json") == Json({{"min_pixels", 9408}, {"max_pixels", 12544}}));
  CHECK(read("video_preprocessor_config.json") == Json({{"size", {{"longest_edge", 777}}}}));

  ModelConfig square = testing::TinyLlava();
  data.pixels = data.video_pixels = {};
  data.pad_pictures = true;
  square.preprocessor = {{"do_pad", true}, {"image_processor_type", "LlavaImageProcessor"}};
  folder.Write("preprocessor_config.json", R"({"size": 1})");
  folder.Write("processor_config.json", R"({"image_processor": {"size": 1}})");
  WriteImageProcessor(square, data, folder.path());
  for (const Json& json :
       {read("preprocessor_config.json"), read("processor_config.json")["image_processor"]}) {
    CHECK(json ==
          Json({{"do_pad", true}, {"image_processor_type", "LlavaImageProcessor"}, {"size", 1}}));
  }
}

TEST_CASE("OpenGVLab's config.json gets the run's tiles, and a template that their code knows",
          "[trainer][cpu]") {
  ModelConfig model = testing::TinyInternVl(/*large_form=*/false);
  DataConfig data;
  data.tiles = {2, 5, false};
  data.chat_template = "Hermes-2";
  data.system = "Be kind.";
  Json json = {{"template", "internvl2_5"}};
  SetTileSettings(model, data, &json);
  CHECK(json == Json({{"template", "internvl2_5"}}));  // Transformers' naming
  model.naming = WeightNaming::kOriginal;
  SetTileSettings(model, data, &json);
  CHECK(json == Json({{"template", "Hermes-2"},
                      {"system_message", "Be kind."},
                      {"dynamic_image_size", true},
                      {"min_dynamic_patch", 2},
                      {"max_dynamic_patch", 5},
                      {"use_thumbnail", false}}));
  data.chat_template = "chatml";
  data.tiles = {1, 1, true};
  SetTileSettings(model, data, &json);
  CHECK(json["template"] == "Hermes-2");
  CHECK(json["dynamic_image_size"] == false);
}

TEST_CASE("a written folder says how pictures are prepared", "[trainer][cpu]") {
  const Folders folders;
  folders.Describe("clip");
  const Json images = folders.Read("preprocessor_config.json");
  CHECK(images["processor_class"] == "LlavaProcessor");
  CHECK(images["image_mean"] == Json({0.4, 0.5, 0.6}));
  const Json processor = folders.Read("processor_config.json");
  CHECK(processor["patch_size"] == 14);
  CHECK(processor["num_additional_image_tokens"] == 1);
  CHECK(processor["vision_feature_select_strategy"] == "default");
  folders.Describe("vit");
  CHECK(folders.Read("preprocessor_config.json")["size"] == Json({{"height", 56}, {"width", 56}}));
  CHECK(folders.Read("processor_config.json")["image_seq_length"] == 4);
  const Json named = {{"start_image_token", "<img>"},
                      {"end_image_token", "</img>"},
                      {"context_image_token", "<IMG_CONTEXT>"},
                      {"video_token", "<quad>"}};
  CHECK(folders.Read("tokenizer_config.json") == Json({{"extra_special_tokens", named}}));

  folders.folder.Write("llm/tokenizer_config.json", R"({"extra_special_tokens": ["<a>"]})");
  folders.Describe("vit");
  CHECK(folders.Read("tokenizer_config.json") ==
        Json({{"extra_special_tokens", named}, {"additional_special_tokens", {"<a>"}}}));
}

}  // namespace
}  // namespace equipoise
