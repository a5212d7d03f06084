#include "models/families/rope_config.h"

#include <catch2/catch.hpp>
#include <vector>

#include "models/families/families.h"
#include "tests/models/config_json.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using testing::Llama;
using testing::Qwen2;
using testing::Refusal;

// Phi-3 with heads of 16 elements, 12 of which turn.
Json Phi3() {
  Json json = Qwen2();
  json["model_type"] = "phi3";
  json["max_position_embeddings"] = 131072;
  json["partial_rotary_factor"] = 0.75;
  json["original_max_position_embeddings"] = 4096;
  json["rope_theta"] = 1e4;
  json.erase("rope_parameters");
  json["rope_scaling"] = {{"type", "longrope"},
                          {"short_factor", {1, 1.1, 1.2, 1.3, 1.4, 1.5}},
                          {"long_factor", {1, 2, 4, 8, 16, 32}}};
  return json;
}

TEST_CASE("llama3 rope needs numbers in order", "[models][cpu]") {
  Json json = Llama();
  json["rope_scaling"]["low_freq_factor"] = 4.0;
  CHECK_THAT(Refusal(json), Contains("low_freq_factor"));
  json = Llama();
  json["rope_scaling"].erase("original_max_position_embeddings");
  CHECK_THAT(Refusal(json), Contains("original_max_position_embeddings"));
}

TEST_CASE("a scaling that is added to a folder counts before its parameters", "[models][cpu]") {
  Json json = Llama();
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  json["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
  const TextConfig scaled = ParseModelConfig(json, "c").text;
  CHECK(scaled.rope_type == "yarn");
  CHECK(scaled.rope_factor == 4);
  for (const Json& none : {Json(nullptr), Json::object()}) {
    json["rope_scaling"] = none;
    CHECK(ParseModelConfig(json, "c").text.rope_type == "default");
  }
}

TEST_CASE("the numbers of a scaling survive an export", "[models][cpu]") {
  const Json yarn = {{"type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 128},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 0.5}};
  for (const Json& rope : {yarn, Json{{"rope_type", "linear"}, {"factor", 2.0}}}) {
    Json json = Llama();
    json["rope_scaling"] = rope;
    const Json once = ToHuggingFace(ParseModelConfig(json, "config.json"));
    for (const auto& [key, value] : rope.items()) {
      CHECK(once["rope_scaling"][key] == value);
      CHECK(once["rope_parameters"][key] == value);
    }
    CHECK(once["rope_scaling"].size() == rope.size() + (rope.contains("rope_type") ? 1 : 2));
    CHECK(once["rope_parameters"]["rope_theta"] == 5e5);
    CHECK(ToHuggingFace(ParseModelConfig(once, "c")) == once);
    // A model that was read from nowhere has its numbers written out.
    ModelConfig config = ParseModelConfig(json, "config.json");
    config.source = Json();
    const TextConfig again = ParseModelConfig(ToHuggingFace(config), "c").text;
    CHECK(again.rope_factor == config.text.rope_factor);
    CHECK(again.rope_attention_factor == config.text.rope_attention_factor);
    CHECK(again.rope_original_max_position_embeddings ==
          config.text.rope_original_max_position_embeddings);
  }
}

TEST_CASE("Phi-3's longrope is read and written in both forms", "[models][cpu]") {
  for (const char* type : {"longrope", "su", "yarn"}) {
    Json json = Phi3();
    json["rope_scaling"]["type"] = type;
    const ModelConfig config = ParseModelConfig(json, "config.json");
    CHECK(config.text.rope_type == "longrope");
    CHECK(config.text.rotary_dim() == 12);
    CHECK(config.text.rope_factor == 32);
    CHECK(config.text.rope_attention_factor == Approx(1.190238));
    CHECK(config.text.rope_long_factor == std::vector<double>{1, 2, 4, 8, 16, 32});
    const Json once = ToHuggingFace(config);
    json["rope_scaling"]["type"] = "longrope";  // the only one of its names that all versions know
    CHECK(once["rope_scaling"] == json["rope_scaling"]);
    CHECK(once["rope_parameters"]["rope_type"] == "longrope");
    CHECK(once["original_max_position_embeddings"] == 4096);
    CHECK(ToHuggingFace(ParseModelConfig(once, "c")) == once);
  }
  Json json = Phi3();
  json.erase("original_max_position_embeddings");  // Transformers takes 4096 then
  json["rope_scaling"]["original_max_position_embeddings"] = 4096;
  CHECK(ParseModelConfig(json, "c").text.rope_original_max_position_embeddings == 4096);
  json["rope_scaling"]["original_max_position_embeddings"] = 2048;
  CHECK_THAT(Refusal(json), Contains("is 2048, but 4096 beside the other sizes"));
}

TEST_CASE("impossible scalings are refused by key", "[models][cpu]") {
  const auto refusal = [](Json json, const Json& changes) {
    json["rope_scaling"].update(changes);
    return Refusal(json);
  };
  const Json long_list = {1, 1, 1, 1, 1, 1, 1};
  CHECK_THAT(refusal(Phi3(), {{"short_factor", nullptr}}), Contains("short_factor: missing"));
  CHECK_THAT(refusal(Phi3(), {{"long_factor", long_list}}),
             Contains("long_factor: must be a list of 6 numbers"));
  CHECK_THAT(refusal(Phi3(), {{"long_factor", {1, 1, 1, 1, 1, 0}}}),
             Contains("long_factor: must be above 0"));
  CHECK_THAT(refusal(Phi3(), {{"partial_rotary_factor", 0.7}}), Contains("no even number"));
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 2}};
  CHECK(refusal(Llama(), yarn).empty());
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, Json>>{{"factor", 0.5},
                                                 {"beta_fast", 0.5},
                                                 {"beta_slow", -1},
                                                 {"attention_factor", 0},
                                                 {"rope_theta", 1},
                                                 {"partial_rotary_factor", 0.5},
                                                 {"original_max_position_embeddings", 0}}) {
    Json changed = yarn;
    changed[key] = value;
    CHECK_THAT(refusal(Llama(), changed), Contains(key));
  }
  CHECK_THAT(refusal(Llama(), {{"rope_type", "linear"}, {"factor", nullptr}}),
             Contains("factor: missing"));
  CHECK_THAT(refusal(Llama(), {{"rope_type", "su"}}),
             Contains("'su' is not supported, only 'default', 'linear', 'dynamic', 'llama3', "
                      "'yarn', 'longrope' are"));
  Json json = Llama();
  for (const char* key : {"mlp_bias", "attention_bias"}) json.erase(key);
  json["model_type"] = "internlm2";
  CHECK_THAT(Refusal(json), Contains("'llama3' is not supported, only 'default', 'linear'"));
}

}  // namespace
}  // namespace equipoise
