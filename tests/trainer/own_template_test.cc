// The template of a model's folder beside data.template.
#include "trainer/settings/own_template.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "data/text/jinja_template.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/tiny_tokenizer.h"
#include "trainer/settings/model_section.h"

namespace equipoise {
namespace {

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 48,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 512, "vocab_size": 306})";

TEST_CASE("another template than the folder's own is told", "[trainer][cpu]") {
  const TemporaryFolder folder;
  folder.Write("config.json", kLlama);
  RunConfig config;
  config.model.hf = folder.path();
  const ModelConfig model = ModelConfigOf(config.model);
  const auto line = [&](const std::string& jinja, const std::string& name) {
    folder.Write("chat_template.jinja", jinja);
    config.data.chat_template = name;
    return OtherTemplate(config, model);
  };
  CHECK_FALSE(OwnTemplateOf(model, folder.path()));
  CHECK(line("none of ours", "chatml").empty());
  CHECK(line("<|im_start|> <|im_end|>", "chatml").empty());
  CHECK(line("<|im_start|> <|im_end|>", "plain").empty());
  CHECK(line("<|im_start|> </think>", "chatml") ==
        "data.template: chatml: " + folder.path() +
            " has another of its own, and answers best in that; set data.template: qwen3, unless "
            "this run is to teach it a new form");
  CHECK(OwnTemplateOf(model, folder.path())->name == "qwen3");
  CHECK(line("<|im_start|> </think>", "qwen3").empty());
  CHECK(line("<|im_start|> </think>", "qwen3_no_thinking").empty());
  CHECK_FALSE(line("<|im_start|> <|im_end|>", "qwen3_no_thinking").empty());
  CHECK(line(JinjaTemplate(*FindChatTemplate("plain"), {"", "", ""}), "vicuna_v1").empty());
  CHECK(OwnTemplateOf(model, folder.path())->name == "plain");
  config.model.hf.clear();
  CHECK(line("<|im_start|> </think>", "chatml").empty());
}

TEST_CASE("LLaVA's folders are trained with what their authors trained with", "[trainer][cpu]") {
  const TemporaryFolder folder;
  RunConfig config;
  config.model.hf = folder.path();
  // What chat_template.json of a published folder has; the tokenizer's is the language model's.
  const std::string onevision =
      "{{'<|im_start|>' + message['role'] + ' '}}{{ '<image>\\n' }}{{'<|im_end|>'}}";
  const std::string mistral =
      "{{ '<<SYS>>\\n' }}{{ '[INST] ' }}{% for content in message['content'] | "
      "selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% endfor %}{{' [/INST]' }}";
  struct Row {
    const char *form, *text;
    std::string jinja, name;
  };
  for (const Row& row : {Row{"llava", "llama", "", "vicuna_v1"},
                         {"llava", "llama", "{{ 'ASSISTANT:' }}", "vicuna_v1"},
                         {"llava", "qwen2", onevision, "qwen2-vl"},
                         {"llava_next", "mistral", "", "llava-mistral"},
                         {"llava_next", "mistral", mistral, "llava-mistral"},
                         {"llava_onevision", "qwen2", onevision, "qwen2-vl"}}) {
    CAPTURE(row.form, row.text, row.jinja);
    Json json = Json::parse(kLlama);
    json["model_type"] = row.text, json["num_key_value_heads"] = 2;
    const bool siglip = std::string(row.form) == "llava_onevision";
    json = {{"model_type", row.form},
            {"image_token_index", 305},
            {"video_token_index", 304},
            {"text_config", json},
            {"vision_feature_select_strategy", siglip ? "full" : "default"},
            {"vision_config",
             {{"model_type", siglip ? "siglip_vision_model" : "clip_vision_model"},
              {"hidden_size", 32},
              {"image_size", 28},
              {"intermediate_size", 64},
              {"num_attention_heads", 4},
              {"num_hidden_layers", 2},
              {"patch_size", 14}}}};
    if (siglip) {
      json["image_grid_pinpoints"] = {{28, 28}};
      json["vision_config"]["vision_use_head"] = false;
    }
    if (std::string(row.form) == "llava_next") json["image_grid_pinpoints"] = {{28, 56}};
    folder.Write("config.json", json.dump());
    folder.Write("tokenizer_config.json",
                 R"({"chat_template": "<|im_start|> <|im_end|> You are a kind assistant."})");
    folder.Write("chat_template.json", Json({{"chat_template", row.jinja}}).dump());
    if (row.jinja.empty()) folder.Write("tokenizer_config.json", "{}");
    const ChosenTemplate chosen = ChooseTemplate(ModelConfigOf(config.model), folder.path());
    CHECK(chosen.name == row.name);
    CHECK(chosen.warning.empty());
  }
}

TEST_CASE("data.template: auto is the folder's own", "[trainer][cpu]") {
  const TemporaryFolder folder;
  folder.Write("config.json", kLlama);
  RunConfig config;
  const auto resolved = [&](const std::string& jinja, const std::string& system = "") {
    if (!jinja.empty()) folder.Write("chat_template.jinja", jinja);
    config.data.chat_template = "auto";
    config.data.system = system;
    ResolveTemplate(&config);
    return config.data.chat_template + "|" + config.data.system;
  };
  const auto warning = [&] {
    return ChooseTemplate(ModelConfigOf(config.model), folder.path()).warning;
  };
  CHECK(resolved("<|im_start|> </think>") == "chatml|");  // no folder is given
  config.model.hf = folder.path();
  CHECK(resolved("<|im_start|> </think>") == "qwen3|");
  CHECK(warning().empty());
  CHECK(resolved("none of ours") == "chatml|");
  CHECK(warning() == folder.path() +
                         ": its chat template is of no known form; data.template: chatml is used, "
                         "set another where the model was trained in one");
  CHECK(resolved(JinjaTemplate(*FindChatTemplate("qwen3_no_thinking"), {"", "", ""})) ==
        "qwen3_no_thinking|");
  CHECK(resolved(JinjaTemplate(*FindChatTemplate("internlm2"), {"Be kind.", "", ""})) ==
        "internlm2|Be kind.");
  CHECK(resolved("", "Be brief.") == "internlm2|Be brief.");
  CHECK_THROWS_MATCHES(
      resolved(JinjaTemplate(*FindChatTemplate("plain"), {"", "", ""})), ConfigError,
      Catch::Message("data.template: auto: " + folder.path() +
                     " was trained with plain, in which no question is answered; set the template "
                     "that this run is to teach"));

  SECTION("who reads the folder alone asks as the run trains") {
    folder.Write("chat_template.jinja", "<|im_start|> </think> # Tools");
    const ModelConfig model = ModelConfigOf(config.model);
    const auto same = [&](const char* name, const char* system) {
      config.data.chat_template = name;
      config.data.system = system;
      return AnswersAsFolder(config.data, model, folder.path());
    };
    CHECK(same("qwen3", ""));
    CHECK(same("plain", "Be kind."));
    CHECK_FALSE(same("qwen3", "Be kind."));
    CHECK_FALSE(same("qwen3_no_thinking", ""));
    folder.Write("chat_template.jinja", "<|im_start|> </think>");  // it only looks like it
    CHECK_FALSE(same("qwen3", ""));
    folder.Write("chat_template.jinja", "[INST] <<SYS>>");
    CHECK_FALSE(same("llama-2", ""));
    const ChatTemplateForm& form = *FindChatTemplate("qwen3_no_thinking");
    folder.Write("chat_template.jinja", JinjaTemplate(form, {"Be kind.", "", ""}));
    CHECK(same("qwen3_no_thinking", "Be kind."));
    CHECK_FALSE(same("qwen3_no_thinking", ""));
  }
  SECTION("no template of LLaVA's folders renders what it was trained with") {
    folder.Write("config.json", R"({"model_type": "llava", "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 32, "image_size": 28,
        "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
        "patch_size": 14}, "image_token_index": 305, "text_config": )" +
                                    std::string(kLlama) + "}");
    const ModelConfig model = ModelConfigOf(config.model);
    const auto same = [&](const std::string& jinja, const char* name) {
      folder.Write("chat_template.jinja", jinja);
      config.data.chat_template = name;
      return AnswersAsFolder(config.data, model, folder.path());
    };
    config.data.system = "";
    CHECK_FALSE(same("{{ message['role'].upper() + ': ' }}{{ 'ASSISTANT:' }}", "vicuna_v1"));
    CHECK_FALSE(same("<|im_start|> <|im_end|> # Tools", "chatml"));
    CHECK(same(JinjaTemplate(*FindChatTemplate("vicuna_v1"), {"", "", ""}), "vicuna_v1"));
  }
  SECTION("of the language model of a model from parts") {
    const TemporaryFolder encoder;
    encoder.Write("config.json", R"({"model_type": "clip_vision_model", "hidden_size": 32,
        "image_size": 28, "intermediate_size": 64, "num_attention_heads": 4,
        "num_hidden_layers": 2, "patch_size": 14})");
    folder.Write("tokenizer.json", TinyTokenizerJson().dump());
    config.model.hf.clear();
    config.model.vision = encoder.path();
    config.model.llm = folder.path();
    CHECK(resolved("<|im_start|> </think>") == "qwen3|");
    CHECK(resolved("none of ours") == "vicuna_v1|");  // that of LLaVA over LLaMA
  }
  SECTION("one that is given stays") {
    config.data.chat_template = "vicuna_v1";
    ResolveTemplate(&config);
    CHECK(config.data.chat_template == "vicuna_v1");
  }
}

}  // namespace
}  // namespace equipoise
