// Windows of attention in configurations, and the longest sequences that they leave whole.
#include "models/spec/sliding_window.h"

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "tests/models/config_json.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using testing::Qwen2;
using testing::Refusal;

TEST_CASE("a window that a position can be outside of is kept", "[models][cpu]") {
  Json json = Qwen2();
  json["model_type"] = "mistral";
  const auto window = [&] { return ParseModelConfig(json, "config.json").text.sliding_window; };
  for (const Json& none : {Json(nullptr), Json(512), Json(4096)}) {
    json["sliding_window"] = none;
    const ModelConfig config = ParseModelConfig(json, "config.json");
    CHECK_FALSE(config.text.attention_bias);
    CHECK(config.text.sliding_window == 0);
    CHECK(ToHuggingFace(config)["sliding_window"] == none);
    CHECK(ToHuggingFace(config)["architectures"] == Json({"MistralForCausalLM"}));
  }
  json["sliding_window"] = 511;
  CHECK(window() == 511);
  const ModelConfig config = ParseModelConfig(json, "config.json");
  CHECK(ToHuggingFace(config)["sliding_window"] == 511);
  RequireWithinWindow(config.text, 511, "data.max_tokens");
  CHECK_THROWS_WITH(RequireWithinWindow(config.text, 512, "data.max_tokens"),
                    Contains("data.max_tokens: 512 tokens are more than the model's "
                             "sliding_window of 511"));
  json.erase("sliding_window");  // as Transformers: 4096
  CHECK(ToHuggingFace(ParseModelConfig(json, "config.json"))["sliding_window"] == Json(nullptr));
  json["max_position_embeddings"] = 32768;
  CHECK(window() == 4096);
  CHECK(ToHuggingFace(ParseModelConfig(json, "config.json"))["sliding_window"] == 4096);
  json["sliding_window"] = 0;
  CHECK_THAT(Refusal(json), Contains("sliding_window"));
}

TEST_CASE("Qwen's window is of the layers that have one", "[models][cpu]") {
  const std::string family = GENERATE("qwen2", "qwen3");
  Json json = Qwen2();
  json["model_type"] = family;
  json["sliding_window"] = 100;
  json["max_window_layers"] = 1;
  const auto window = [&] { return ParseModelConfig(json, "config.json").text.sliding_window; };
  CHECK(window() == 0);
  json["use_sliding_window"] = true;
  CHECK(window() == 100);
  json["max_window_layers"] = 0;
  CHECK(window() == 100);
  json["max_window_layers"] = 2;  // none of its two layers
  CHECK(window() == 0);
  json["layer_types"] = {"full_attention", "sliding_attention"};
  CHECK(window() == 100);
  CHECK(ToHuggingFace(ParseModelConfig(json, "c"))["sliding_window"] == 100);
  json["layer_types"] = {"full_attention", "chunked_attention"};
  CHECK_THAT(Refusal(json), Contains("layer_types"));
  json["layer_types"] = {"full_attention", "full_attention"};
  CHECK(window() == 0);
  json["layer_types"] = {"full_attention", "sliding_attention"};
  json["use_sliding_window"] = false;
  CHECK_THAT(Refusal(json), Contains("layer_types"));
}

}  // namespace
}  // namespace equipoise
