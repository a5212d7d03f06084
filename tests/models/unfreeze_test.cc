#include "models/families/unfreeze.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "models/families/resolve_unfreeze.h"

namespace equipoise {
namespace {

using Words = std::vector<std::string>;

const Words kAll = {"vision", "projector", "llm"};

ModelConfig Unfrozen(const std::string& preset, const Words& texts, const Words& frozen = kAll) {
  ModelConfig config = PresetConfig(preset);
  ResolveUnfreeze(texts, frozen, &config);
  return config;
}

// Names of layers that are trained, given what is frozen.
std::set<std::string> Trained(const ModelConfig& config, const Words& frozen = kAll) {
  std::set<std::string> names;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    if (IsTrained(spec, frozen)) names.insert(spec.name);
  }
  return names;
}

std::set<std::string> Numbered(const std::string& prefix, int begin, int end) {
  std::set<std::string> names;
  for (int i = begin; i < end; ++i) names.insert(prefix + std::to_string(i));
  return names;
}

std::string Message(const Words& texts, const Words& frozen = {"vision", "llm"},
                    const std::string& preset = "internvl2-8b") {
  ModelConfig config = PresetConfig(preset);
  try {
    ResolveUnfreeze(texts, frozen, &config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("slices select blocks as Python's do", "[unfreeze]") {
  const std::string vision = "vision_tower.encoder.layer.", llm = "language_model.model.layers.";
  for (const auto& [slice, names] : std::vector<std::pair<std::string, std::set<std::string>>>{
           {"vision[-8:]", Numbered(vision, 16, 24)},
           {"vision[:4]", Numbered(vision, 0, 4)},
           {"vision[10:20]", Numbered(vision, 10, 20)},
           {"vision[:]", Numbered(vision, 0, 24)},
           {"vision[-100:2]", Numbered(vision, 0, 2)},
           {"vision[20:100]", Numbered(vision, 20, 24)},
           {"vision[-4:-2]", Numbered(vision, 20, 22)},
           {"llm[-2:]", Numbered(llm, 30, 32)},
           {"llm[:-30]", Numbered(llm, 0, 2)}}) {
    INFO(slice);
    CHECK(Trained(Unfrozen("internvl2-8b", {slice})) == names);
  }
}

TEST_CASE("blocks that nothing computes with are not counted", "[unfreeze]") {
  // CLIP has 24 blocks, and LLaVA takes the output of the last but one.
  const std::string prefix = "vision_tower.encoder.layers.";
  const ModelConfig config = Unfrozen("llava1_5-7b", {"vision[-2:]"});
  CHECK(Trained(config) == std::set<std::string>{prefix + "21", prefix + "22"});
}

TEST_CASE("a frozen component has layers that are trained, and no other changes", "[unfreeze]") {
  const Words frozen = {"vision", "llm"};
  const ModelConfig config = Unfrozen("internvl2-8b", {"vision[-1:]", "lm_head"}, frozen);
  const std::vector<LayerSpec> specs = LayerSpecs(config),
                               plain = LayerSpecs(Unfrozen("internvl2-8b", {}));
  REQUIRE(specs.size() == plain.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    INFO(specs[i].name);
    const bool block = specs[i].name == "vision_tower.encoder.layer.23",
               head = specs[i].kind == kHead;
    const bool projector = specs[i].component == Component::kConnector;
    CHECK(specs[i].unfrozen == (block || head));
    CHECK(IsTrained(specs[i], frozen) == (block || head || projector));
    CHECK_FALSE(IsTrained(plain[i], kAll));
    CHECK(specs[i].shape == plain[i].shape);  // of the same costs, and profile
    for (const TensorSpec& tensor : specs[i].parameters) {
      const bool norm = tensor.name == "language_model.model.norm.weight";
      CHECK(tensor.role == (norm ? ParameterRole::kFrozen : ParameterRole::kWeight));
    }
    if (!head) continue;
    CHECK(specs[i].trained_count() == config.text.vocab_size * config.text.hidden_size);
  }
}

TEST_CASE("names and regular expressions train a part of a block", "[unfreeze]") {
  const ModelConfig config =
      Unfrozen("internvl2-8b", {"vision_tower.*layer\\.2[23]\\.mlp", "layers.0.self_attn.o_proj"});
  std::set<std::string> trained;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (spec.unfrozen && MayTrain(tensor.role)) trained.insert(tensor.name);
    }
  }
  std::set<std::string> expected = {"language_model.model.layers.0.self_attn.o_proj.weight"};
  for (const char* block : {"22", "23"}) {
    for (const char* name : {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"})
      expected.insert(std::string("vision_tower.encoder.layer.") + block + ".mlp." + name);
  }
  CHECK(trained == expected);
  CHECK(Trained(config).size() == 3);
}

TEST_CASE("names are those of the model's own code too", "[unfreeze]") {
  ModelConfig config = PresetConfig("internvl2-8b");
  config.naming = WeightNaming::kOriginal;
  config.text.model_type = "internlm2";
  ResolveUnfreeze({"vision_model.encoder.layers.23", "wqkv", "output"}, kAll, &config);
  CHECK(config.unfreeze.count("vision_tower.encoder.layer.23") == 1);  // of the layer scales
  CHECK(config.unfreeze.count("vision_tower.encoder.layer.23.attention.q_proj") == 1);
  CHECK(config.unfreeze.count("language_model.model.layers.0.self_attn.k_proj") == 1);
  CHECK(config.unfreeze.count("language_model.lm_head") == 1);
}

TEST_CASE("a tied head is the embedding, which is trained for both", "[unfreeze]") {
  for (const char* name : {"lm_head", "embed_tokens"}) {
    INFO(name);
    const ModelConfig config = Unfrozen("qwen2_5_vl-3b", {name});
    const std::vector<LayerSpec> specs = LayerSpecs(config);
    CHECK(config.unfreeze.size() == 1);
    const LayerSpec& head = specs.back();
    CHECK(head.tied.role == ParameterRole::kWeight);
    CHECK(head.parameters[0].role == ParameterRole::kFrozen);  // the norm
    CHECK(IsTrained(head, kAll));
    CHECK(Trained(config).size() == 2);
    CHECK(DescribeUnfrozen(config).find("(the embedding is the head too)") != std::string::npos);
  }
  const ModelConfig norm = Unfrozen("qwen2_5_vl-3b", {"norm"}, {"llm"});
  const LayerSpec head = LayerSpecs(norm).back();
  CHECK(IsTrained(head, kAll));
  CHECK(head.tied.role == ParameterRole::kFrozen);
}

TEST_CASE("the log tells how much of each module is trained", "[unfreeze]") {
  CHECK(DescribeUnfrozen(PresetConfig("internvl2-8b")).empty());
  CHECK(DescribeUnfrozen(Unfrozen("internvl2-8b", {"vision[-8:]", "lm_head"})) ==
        "model.unfreeze trains 100.79 of 304.01 M parameters of vision, in 8 of its 25 layers; "
        "379.10 of 7737.78 M parameters of llm, in 1 of its 34 layers");
}

TEST_CASE("what model.unfreeze refuses", "[unfreeze]") {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"projector", "projector: is all of it; take projector out of model.freeze"},
           {"llm", "llm: is all of it; take llm out of model.freeze"},
           {"vision[8:4]", "vision[8:4]: selects none of the 24 blocks of vision"},
           {"vision[24:]", "vision[24:]: selects none of the 24 blocks"},
           {"vision[3]", "vision[3]: is no slice of blocks; write vision[-8:] for the last eight"},
           {"vision[::2]", "vision[::2]: is no slice"},
           {"llm[-:]", "llm[-:]: is no slice"},
           {"llm[a:]", "llm[a:]: is no slice"},
           {"llm[99999999999999999999:]", "99999999999999999999 is no number of a block"},
           {"vit[-8:]", "vit[-8:]: this model has no 'vit'; use vision, projector or llm"},
           {"lm_haed", "lm_haed: matches no module of this model; did you mean 'lm_head'?"},
           {"mlp1", "mlp1: matches no module of this model"},
           {"zzzzzzzz",
            "zzzzzzzz: matches no module of this model; names are such as "
            "model.vision_tower.encoder.layer.0.attention.q_proj and "},
           {"layers[", "'layers[' is no regular expression"},
           {"self_attn.q_proj", "are one product of their input; name both, or neither"}}) {
    INFO(text);
    const std::string said = Message({text});
    CHECK(said.find("model.unfreeze: ") == 0);
    INFO(said);
    CHECK(said.find(message) != std::string::npos);
    CHECK(said.find('\n') == std::string::npos);
  }
  CHECK(
      Message({"llm[-1:]"}, {"vision"}) ==
      "model.unfreeze: llm[-1:]: llm is not in model.freeze: all of it is trained; add llm there, "
      "or leave this out");
  CHECK(Message({"lm_head"}, {"vision"}).find("lm_head: llm is not in model.freeze") !=
        std::string::npos);
  CHECK(Message({"multi_modal_projector"}).find("projector is not in model.freeze") !=
        std::string::npos);
  CHECK(Message({"projector[-1:]"}, kAll)
            .find("projector has no blocks; name its modules, such as") != std::string::npos);
  // A name that is of frozen modules and of others means the frozen ones.
  CHECK(Message({"mlp"}, {"llm"}).empty());
}

}  // namespace
}  // namespace equipoise
