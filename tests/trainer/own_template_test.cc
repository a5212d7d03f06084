// The template of a model's folder beside data.template.
#include "trainer/settings/own_template.h"

#include <catch2/catch.hpp>

#include "tests/data/temporary_folder.h"
#include "trainer/settings/model_section.h"

namespace equipoise {
namespace {

TEST_CASE("another template than the folder's own is told", "[trainer][cpu]") {
  const TemporaryFolder folder;
  folder.Write("config.json", R"({"model_type": "llama", "hidden_size": 48,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
      "max_position_embeddings": 512, "vocab_size": 306})");
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
  config.model.hf.clear();
  CHECK(line("<|im_start|> </think>", "chatml").empty());
}

}  // namespace
}  // namespace equipoise
