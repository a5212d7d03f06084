#include "models/weights/peft_folder.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/weights/peft_config.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"
#include "tests/models/model_support.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

constexpr char kAttention[] = "model.layers.0.self_attn.";

// Our names of parts of wqkv in both layers, which are no names of the model's own code.
std::vector<std::string> Parts(const std::vector<std::string>& names) {
  std::vector<std::string> targets;
  for (const char* layer : {"0", "1"}) {
    for (const std::string& name : names)
      targets.push_back(std::string("model.layers.") + layer + ".self_attn." + name);
  }
  return targets;
}

// InternLM2's wqkv has, for each of two key/value heads, two heads of queries, a key and a value.
ModelConfig Adapted(const std::vector<std::string>& targets) {
  ModelConfig config = testing::TinyText("internlm2", /*tied=*/false);
  config.naming = WeightNaming::kOriginal;
  config.lora.targets = targets;
  config.lora.rank = 2;
  config.lora.alpha = 6;
  return config;
}

std::map<std::string, at::Tensor> TrainedOf(const testing::TestModel& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const Parameter* parameter : model.flat->parameters()) {
    if (parameter->role == ParameterRole::kBase) continue;
    tensors[parameter->name] = parameter->stored().clone();
  }
  return tensors;
}

TEST_CASE("a fused layer's adapter adds to each part's rows what the part's own adds", "[lora]") {
  const auto targets =
      GENERATE(std::vector<std::string>{"all-linear"}, Parts({"q_proj", "v_proj"}));
  const ScratchFolder folder;
  const ModelConfig config = Adapted(targets);
  const auto ours = TrainedOf(testing::MakeModel(config));
  WritePeft(folder.path(), config, "base", ours);
  std::vector<std::pair<FusedRows, at::Tensor>> parts;
  const FusedRows rows[] = {{0, 2, 4, 2}, {2, 1, 4, 2}, {3, 1, 4, 2}};
  int64_t count = 0;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const std::string layer = std::string(kAttention) + name;
    at::Tensor added = at::zeros({name[0] == 'q' ? 32 : 16, 32});
    if (ours.count(layer + ".lora_A.weight") > 0) {
      added = at::mm(ours.at(layer + ".lora_B.weight"), ours.at(layer + ".lora_A.weight"));
      ++count;
    }
    parts.emplace_back(rows[parts.size()], added);
  }
  const SafetensorsReader file(PeftTensorFile(folder.path()));
  const std::string fused = "base_model.model.model.layers.0.attention.wqkv";
  const at::Tensor a = file.Read(fused + ".lora_A.weight"), b = file.Read(fused + ".lora_B.weight");
  CHECK(a.size(0) == 2 * count);
  CHECK(at::mm(b, a).allclose(FuseRows(parts), 1e-5, 1e-6));
  const Json json = PeftConfigOf(config, "base");
  CHECK(json["rank_pattern"]["model.layers.0.attention.wqkv"] == 2 * count);
  CHECK(json["alpha_pattern"]["model.layers.0.attention.wqkv"] == 6.0 * static_cast<double>(count));
}

TEST_CASE("Phi-3's names are those of its fused layers", "[lora]") {
  ModelConfig config = testing::TinyText("phi3", /*tied=*/false);
  config.naming = WeightNaming::kOriginal;
  for (const auto& [target, parts] : {std::pair("qkv_proj", 3), std::pair("gate_up_proj", 2)}) {
    config.lora.targets = {target};
    ResolveLora("model.adapter", &config);
    CHECK(config.lora.targets.size() == static_cast<size_t>(2 * parts));
    CHECK(PeftConfigOf(config, "base")["target_modules"] == Json{target});
  }
  for (const char* part : {"q_proj", "up_proj"}) {
    config.lora.targets = {part};
    CHECK_THROWS_WITH(ResolveLora("model.adapter", &config),
                      Catch::Contains("is a part of model.layers.0."));
  }
}

TEST_CASE("an exported folder is read back, by tensor-parallel ranks their parts", "[lora]") {
  const ScratchFolder folder;
  std::vector<std::string> targets = Parts({"q_proj", "v_proj"});
  targets.emplace_back("down_proj");
  const ModelConfig config = Adapted(targets);
  const auto ours = TrainedOf(testing::MakeModel(config));
  WritePeft(folder.path(), config, "base", ours);
  ModelConfig plain = config;
  plain.lora = {};
  ModelConfig read = plain;
  read.lora = ReadPeftConfig(folder.path(), plain);
  CHECK(read.lora.rank == 2);
  CHECK(read.lora.scale() == config.lora.scale());
  CHECK(read.lora.targets.size() == 3 * 2);
  for (const TensorParallel& rank : {TensorParallel{}, TensorParallel{nullptr, 1, 2}}) {
    const testing::TestModel model = testing::MakeModel(read, at::kFloat, {}, {}, rank);
    for (Parameter* parameter : model.flat->parameters()) {
      if (parameter->role != ParameterRole::kBase) parameter->stored().zero_();
    }
    LoadPeft(model.flat->parameters(), read, folder.path());
    size_t found = 0;
    for (const Parameter* parameter : model.flat->parameters()) {
      if (parameter->role == ParameterRole::kBase) continue;
      INFO(parameter->name);
      CHECK(parameter->stored().equal(testing::PartOf(ours.at(parameter->name), *parameter)));
      ++found;
    }
    CHECK(found == ours.size());
  }
}

TEST_CASE("PEFT's folder has a trained embedding as the head that is tied to it too", "[lora]") {
  const ScratchFolder folder;
  ModelConfig plain = testing::TinyText("llama", /*tied=*/true), config = plain;
  config.lora.targets = {"q_proj"};
  config.lora.train = {"model\\.embed_tokens"};
  const std::string embedding = "model.embed_tokens.weight";
  const auto ours = TrainedOf(testing::MakeModel(config));
  WritePeft(folder.path(), config, "base", ours);
  const SafetensorsReader file(PeftTensorFile(folder.path()));
  CHECK(file.Read("base_model.model.lm_head.weight").equal(ours.at(embedding)));
  Json json = ReadJsonFile(PeftConfigFile(folder.path()));
  CHECK(json["ensure_weight_tying"] == true);
  config.lora = ReadPeftConfig(folder.path(), plain);
  CHECK(config.lora.train == std::vector<std::string>{"model\\.embed_tokens"});
  const testing::TestModel model = testing::MakeModel(config);
  LoadPeft(model.flat->parameters(), config, folder.path());
  CHECK(TrainedOf(model).at(embedding).equal(ours.at(embedding)));
  // Without it PEFT's head is the base's.
  json["ensure_weight_tying"] = false;
  WriteText(PeftConfigFile(folder.path()), json.dump());
  CHECK_THROWS_WITH(ReadPeftConfig(folder.path(), plain), Catch::Contains("ensure_weight_tying: "));
  plain.text.tie_word_embeddings = false;
  CHECK(ReadPeftConfig(folder.path(), plain).train.size() == 2);
}

TEST_CASE("adapters whose base PEFT has changed are refused", "[lora]") {
  const ScratchFolder folder;
  const ModelConfig config = Adapted(Parts({"q_proj", "k_proj", "v_proj"}));
  ModelConfig plain = config;
  plain.lora = {};
  WritePeft(folder.path(), config, "base", TrainedOf(testing::MakeModel(config)));
  const Json written = ReadJsonFile(PeftConfigFile(folder.path()));
  const auto read = [&](const char* key, const Json& value) {
    Json json = written;
    json[key] = value;
    WriteText(PeftConfigFile(folder.path()), json.dump());
    return ReadPeftConfig(folder.path(), plain);
  };
  for (const char* kind : {"pissa", "pissa_niter_16", "corda", "olora", "loftq", "lora_ga"}) {
    CHECK_THROWS_WITH(read("init_lora_weights", kind),
                      Catch::Contains("init_lora_weights: '" + std::string(kind)) &&
                          Catch::Contains("path_initial_model_for_weight_conversion"));
  }
  for (const Json& kind : {Json(true), Json(false), Json("gaussian"), Json("eva")})
    CHECK(read("init_lora_weights", kind).rank == config.lora.rank);
  CHECK_THROWS_WITH(read("alora_invocation_tokens", Json({5, 6})),
                    Catch::Contains("alora_invocation_tokens: is not supported"));
}

TEST_CASE("parts that are trained in full are one module to PEFT", "[lora]") {
  const ScratchFolder folder;
  ModelConfig plain = Adapted({}), config = Adapted({"w2"});
  config.text.attention_bias = plain.text.attention_bias = true;
  config.lora.train = {"layers.0.attention.wqkv"};
  const auto ours = TrainedOf(testing::MakeModel(config));
  WritePeft(folder.path(), config, "base", ours);
  const Json json = ReadJsonFile(PeftConfigFile(folder.path()));
  const std::string module = "model.layers.0.attention.wqkv";
  CHECK(json["modules_to_save"] == Json{module});
  const SafetensorsReader file(PeftTensorFile(folder.path()));
  const FusedRows rows[] = {{0, 2, 4, 2}, {2, 1, 4, 2}, {3, 1, 4, 2}};
  for (const char* last : {".weight", ".bias"}) {
    std::vector<std::pair<FusedRows, at::Tensor>> parts;
    for (const char* name : {"q_proj", "k_proj", "v_proj"})
      parts.emplace_back(rows[parts.size()], ours.at(std::string(kAttention) + name + last));
    CHECK(file.Read("base_model.model." + module + last).equal(FuseRows(parts)));
  }
  config.lora = ReadPeftConfig(folder.path(), plain);
  const std::vector<std::string>& read = config.lora.train;
  CHECK(std::set<std::string>(read.begin(), read.end()).size() == 3);
  const testing::TestModel model = testing::MakeModel(config);
  LoadPeft(model.flat->parameters(), config, folder.path());
  for (const auto& [name, tensor] : TrainedOf(model)) CHECK(tensor.equal(ours.at(name)));
}

TEST_CASE("what PEFT cannot hold of a part is refused", "[lora]") {
  ModelConfig dora = Adapted(Parts({"q_proj"})), whole = Adapted({"o_proj"}),
              tied = Adapted({"o_proj"});
  dora.lora.dora = true;
  whole.lora.train = {"model\\.layers\\.0\\.self_attn\\.k_proj"};
  tied.text.tie_word_embeddings = true;
  tied.lora.train = {"model\\.embed_tokens"};
  for (const auto& [config, words] :
       {std::pair(dora, "model.adapter.dora: "), std::pair(whole, "model.adapter.train: "),
        std::pair(tied, "model.adapter.train: model.embed_tokens is the head too")}) {
    const ScratchFolder folder;
    const auto tensors = TrainedOf(testing::MakeModel(config));
    CHECK_THROWS_WITH(WritePeft(folder.path(), config, "base", tensors),
                      Catch::StartsWith(words) && Catch::Contains("--merge"));
  }
}

}  // namespace
}  // namespace equipoise
