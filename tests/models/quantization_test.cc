#include "models/families/quantization.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

// As Transformers writes it for a folder of AutoGPTQ.
Json Published() {
  return Json::parse(R"({"model_type": "qwen2", "quantization_config": {
    "batch_size": 1, "bits": 4, "damp_percent": 0.01, "dataset": null, "desc_act": true,
    "group_size": 128, "modules_in_block_to_quantize": null, "quant_method": "gptq", "sym": true,
    "true_sequential": true}})");
}

QuantizeConfig Parse(const Json& json) { return ParseQuantization({json, "dir/config.json"}); }

TEST_CASE("a folder in GPTQ's form says how it is to be read", "[gptq]") {
  Json json = Published();
  const QuantizeConfig config = Parse(json);
  CHECK(config.packing == Packing::kGptq);
  CHECK(config.components == std::vector<std::string>{"llm"});
  CHECK(config.gptq.group_size == 128);
  CHECK(config.gptq.act_order);
  CHECK(config.gptq.zero_offset == 1);
  CHECK(config.gptq.Groups(128) == 1);
  CHECK(config.gptq.Groups(129) == 2);
  json["quantization_config"]["checkpoint_format"] = "gptq_v2";
  json["quantization_config"]["group_size"] = -1;
  json["quantization_config"].erase("desc_act");
  const GptqForm second = Parse(json).gptq;
  CHECK(second.zero_offset == 0);
  CHECK(second.Groups(129) == 1);
  CHECK_FALSE(second.act_order);
}

TEST_CASE("a folder without the key has plain weights", "[gptq]") {
  CHECK(Parse({{"model_type", "qwen2"}}).packing == Packing::kNone);
  CHECK(Parse({{"quantization_config", nullptr}}).packing == Packing::kNone);
}

TEST_CASE("other forms are refused by a line that names what is read", "[gptq]") {
  struct Row {
    const char* key;
    Json value;
    const char* words;
  };
  const std::vector<Row> table = {
      {"bits", 3, "bits: 3: GPTQ folders of 4 bits alone are read"},
      {"bits", 8, "bits: 8: GPTQ folders of 4 bits alone are read"},
      {"bits", "4", "bits"},
      {"quant_method", "awq", "quant_method: 'awq': GPTQ folders of 4 bits alone are read"},
      {"quant_method", "bitsandbytes", "'bitsandbytes': GPTQ folders"},
      {"quant_method", 4, "quant_method"},
      {"group_size", 0, "group_size: 0 is not"},
      {"group_size", -2, "group_size: -2 is not"},
      {"group_size", 1.5, "group_size"},
      {"desc_act", 1, "desc_act"},
      {"lm_head", true, "lm_head: true is not supported"},
      {"checkpoint_format", "marlin", "checkpoint_format: 'marlin' is not supported"}};
  for (const Row& row : table) {
    INFO(row.key << " = " << row.value);
    Json json = Published();
    json["quantization_config"][row.key] = row.value;
    CHECK_THROWS_AS(Parse(json), DataError);
    CHECK_THROWS_WITH(Parse(json),
                      StartsWith("dir/config.json: quantization_config: ") && Contains(row.words));
  }
  CHECK_THROWS_WITH(Parse({{"quantization_config", 4}}), Contains("not an object"));
  Json json = Published();
  json["quantization_config"].erase("bits");
  CHECK_THROWS_WITH(Parse(json), Contains("bits"));
}

}  // namespace
}  // namespace equipoise
