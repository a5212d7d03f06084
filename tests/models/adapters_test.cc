#include "models/families/adapters.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"

namespace equipoise {
namespace {

// InternViT and InternLM2 in OpenGVLab's code, which has q, k and v as one.
ModelConfig Published() {
  ModelConfig config = PresetConfig("internvl2-8b");
  config.naming = WeightNaming::kOriginal;
  config.text.model_type = "internlm2";
  return config;
}

ModelConfig Model() { return PresetConfig("internvl2-8b"); }

ModelConfig Adapted(std::vector<std::string> targets, ModelConfig config = Model()) {
  config.lora.targets = std::move(targets);
  return config;
}

// Modules with an adapter, without their numbers.
std::set<std::string> Modules(const ModelConfig& config) {
  std::set<std::string> modules;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      const size_t at = tensor.name.find(".lora_A");
      if (at != std::string::npos)
        modules.insert(std::string(ComponentName(spec.component)) +
                       tensor.name.substr(spec.name.size(), at - spec.name.size()));
    }
  }
  return modules;
}

std::string Message(ModelConfig config) {
  try {
    ResolveLora("model.adapter", &config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("targets are names from a dot on, regular expressions, or all-linear", "[lora]") {
  CHECK(Modules(Adapted({"v_proj"})) ==
        std::set<std::string>{"llm.self_attn.v_proj", "vision.attention.v_proj"});
  CHECK(Modules(Adapted({"language_model.*\\.(q|v)_proj"})) ==
        std::set<std::string>{"llm.self_attn.q_proj", "llm.self_attn.v_proj"});
  CHECK(Modules(Adapted({"proj"})).empty());
  CHECK(Modules(Adapted({"all-linear"})).size() == 7 + 6 + 2);
  ModelConfig frozen = Adapted({"all-linear"});
  frozen.lora.without = {"vision", "projector"};
  CHECK(Modules(frozen).size() == 7);
}

TEST_CASE("resolved names stand for the same layers", "[lora]") {
  for (const char* target : {"all-linear", "v_proj", "language_model.*\\.(q|v)_proj"}) {
    const ModelConfig given = Adapted({target});
    ModelConfig resolved = given;
    ResolveLora("model.adapter", &resolved);
    CHECK(Modules(resolved) == Modules(given));
    CHECK(resolved.lora.targets.size() > 1);
  }
}

TEST_CASE("names are those of the model's own code, a fused one all of its parts", "[lora]") {
  using Names = std::set<std::string>;
  const Names qkv = {"llm.self_attn.q_proj", "llm.self_attn.k_proj", "llm.self_attn.v_proj"};
  const Names vision = {"vision.attention.q_proj", "vision.attention.k_proj",
                        "vision.attention.v_proj"};
  for (const auto& [target, modules] :
       {std::pair("wqkv", qkv), std::pair("attention.wqkv", qkv), std::pair("attn.qkv", vision),
        std::pair("qkv", vision), std::pair("wo", Names{"llm.self_attn.o_proj"}),
        std::pair("w2", Names{"llm.mlp.down_proj"}),
        std::pair("attn.proj", Names{"vision.attention.projection_layer"}),
        std::pair("mlp1.1", Names{"projector.linear_1"}),
        std::pair("vision_model.*fc1", Names{"vision.mlp.fc1"}),
        // Ours, where it is no part.
        std::pair("down_proj", Names{"llm.mlp.down_proj"}),
        std::pair("linear_1", Names{"projector.linear_1"})}) {
    INFO(target);
    ModelConfig config = Adapted({target}, Published());
    CHECK(Modules(config) == modules);
    ResolveLora("model.adapter", &config);
    CHECK(Modules(config) == modules);
  }
  CHECK(Modules(Adapted({"wqkv", "wo", "w1", "w2", "w3"}, Published())).size() == 7);
  // The recipe of Qwen2.5-VL and Qwen3-VL is of the decoder alone.
  for (const char* preset : {"qwen2_5_vl-3b", "qwen3_vl-2b"}) {
    ModelConfig config = Adapted({"q_proj", "k_proj", "v_proj", "o_proj"}, PresetConfig(preset));
    ResolveLora("model.adapter", &config);
    CHECK(Modules(config) == Names{"llm.self_attn.q_proj", "llm.self_attn.k_proj",
                                   "llm.self_attn.v_proj", "llm.self_attn.o_proj"});
    CHECK(config.lora.targets.size() == static_cast<size_t>(4 * config.text.num_hidden_layers));
    CHECK(DescribeLora(config) == "LoRA rank 8 on " +
                                      std::to_string(4 * config.text.num_hidden_layers) +
                                      " linear layers of the language model");
  }
}

TEST_CASE("a part of a fused layer has its whole name alone", "[lora]") {
  const std::string part = "vision_tower.encoder.layer.0.attention.q_proj";
  for (const std::string& name : {part, ExactPattern(part)}) {
    ModelConfig config = Adapted({name}, Published());
    ResolveLora("model.adapter", &config);
    CHECK(config.lora.targets == std::vector<std::string>{ExactPattern(part)});
    CHECK(Modules(config) == std::set<std::string>{"vision.attention.q_proj"});
  }
  for (const char* name : {"q_proj", "(q|k|v)_proj", ".*k_proj"}) {
    const std::string message = Message(Adapted({"w1", name}, Published()));
    CHECK(message.find(std::string("model.adapter.targets: '") + name +
                       "' is a part of vision_model.encoder.layers.0.attn.qkv") == 0);
    CHECK(message.find("write attn.qkv or attention.wqkv, which") != std::string::npos);
  }
  ModelConfig train = Adapted({"w1"}, Published());
  train.lora.train = {"k_proj"};
  CHECK(Message(train).find("model.adapter.train: 'k_proj' is a part of") == 0);
  train.lora.without = {"vision"};
  train.lora.targets = {"w1", "q_proj"};
  CHECK(Message(train).find("write attention.wqkv, which") != std::string::npos);
}

TEST_CASE("the log tells how many layers of each component have adapters", "[lora]") {
  CHECK(DescribeLora(Published()).empty());
  ModelConfig config = Adapted({"all-linear"}, Published());
  CHECK(DescribeLora(config) ==
        "LoRA rank 8 on 96 linear layers of vision, 2 of the projector, 160 of the language model");
  config.lora.train = {"mlp1"};
  config.lora.dora = true;
  ResolveLora("model.adapter", &config);
  CHECK(DescribeLora(config) ==
        "DoRA rank 8 on 96 linear layers of vision, 160 of the language model; modules trained in "
        "full: 3");
}

TEST_CASE("modules that are trained in full have the names of the model's own code", "[lora]") {
  const auto trained = [](const char* name) {
    ModelConfig config = Adapted({"w1"}, Published());
    config.lora.train = {name};
    ResolveLora("model.adapter", &config);
    return config.lora.train;
  };
  CHECK(trained("mlp1").size() == 3);
  CHECK(trained("layers.0.attn.qkv").size() == 3);
  CHECK(trained("vision_model") == trained("vision_tower"));
  CHECK(trained("vision_model.embeddings") == trained("vision_tower.embeddings"));
  CHECK(trained("tok_embeddings").size() == 1);
}

TEST_CASE("all but adapters is a frozen base, and modules that are trained in full", "[lora]") {
  ModelConfig config = Adapted({"q_proj"});
  config.lora.train = {"multi_modal_projector.*"};
  int64_t trained = 0;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    trained += spec.trained_count();
    CHECK(IsTrained(spec, {}) == (spec.trained_count() > 0));
    for (const TensorSpec& tensor : spec.parameters) {
      const bool adapter = tensor.name.find(".lora_") != std::string::npos;
      const bool full = tensor.name.starts_with("multi_modal_projector");
      CHECK((tensor.role == ParameterRole::kAdapter) == adapter);
      CHECK((tensor.role == ParameterRole::kWeight) == full);
    }
  }
  CHECK(trained > 0);
}

TEST_CASE("modules of a frozen component are trained in full all the same", "[lora]") {
  ModelConfig config = Adapted({"q_proj"});
  config.lora.without = {"vision", "projector"};
  config.lora.train = {"multi_modal_projector.linear_1"};
  for (const LayerSpec& spec : LayerSpecs(config)) {
    CAPTURE(spec.name);
    const bool adapted = spec.component == Component::kLanguageModel && spec.has_halves;
    const bool full = spec.component == Component::kConnector;
    CHECK(IsTrained(spec, config.lora.without) == (adapted || full));
    for (const TensorSpec& tensor : spec.parameters) {
      CHECK((tensor.role == ParameterRole::kWeight) ==
            tensor.name.starts_with("multi_modal_projector.linear_1."));
    }
  }
}

TEST_CASE("a head is trained with the embedding that it is tied to", "[lora]") {
  for (const bool trained : {false, true}) {
    ModelConfig config = Adapted({"q_proj"});
    config.text.tie_word_embeddings = true;
    if (trained) config.lora.train = {"embed_tokens"};
    const LayerSpec head = LayerSpecs(config).back();
    REQUIRE_FALSE(head.tied.name.empty());
    CHECK(IsTrained(head, {}) == trained);       // a stage of it alone has weight gradients
    CHECK(IsTrained(head, {"llm"}) == trained);  // frozen alone keeps adapters out
  }
}

TEST_CASE("a module that is trained in full gets no adapter, as in PEFT", "[lora]") {
  ModelConfig config = Adapted({"all-linear"});
  config.lora.train = {"multi_modal_projector.*", "(q|k|v)_proj", "down_proj"};
  CHECK(Modules(config).size() == 7 - 4 + 6 - 3);
  const std::set<std::string> modules = Modules(config);
  ResolveLora("model.adapter", &config);
  CHECK(Modules(config) == modules);
  ModelConfig whole = Adapted({"all-linear"});
  whole.lora.train = {"multi_modal_projector", "layers\\.0\\.mlp"};
  ResolveLora("model.adapter", &whole);
  const std::vector<std::string>& trained = whole.lora.train;
  CHECK(std::count_if(trained.begin(), trained.end(), [](const std::string& name) {
          return name.find("multi_modal_projector") == 0;
        }) == 3);
  CHECK(trained.size() == 3 + 3);
  ModelConfig both = Adapted({"q_proj"});
  both.lora.train = {"(q|k|v)_proj"};
  CHECK(Message(both).find("model.adapter.targets: all of them are in 'train'") == 0);
}

TEST_CASE("what an adapter cannot be put on is one line", "[lora]") {
  CHECK(Message(Adapted({"all-linear"})).empty());
  CHECK(Message(Adapted({"q_proj", "nothing"})).find("'nothing' matches no layer") !=
        std::string::npos);
  CHECK(Message(Adapted({"all"})) ==
        "model.adapter.targets: 'all' matches no layer; write all-linear for all of them");
  CHECK(Message(Adapted({"q_proj,v_proj"})) ==
        "model.adapter.targets: 'q_proj,v_proj' is one name; write a list: [q_proj, v_proj]");
  CHECK(Message(Adapted({"nothing"}, Published()))
            .find("such as vision_model.encoder.layers.0.attn.qkv, mlp1.1 and "
                  "language_model.model.layers.0.attention.wqkv") != std::string::npos);
  CHECK(Message(Adapted({"embed_tokens"})).find("no linear layer") != std::string::npos);
  CHECK(Message(Adapted({"input_layernorm"})).find("no linear layer") != std::string::npos);
  CHECK(Message(Adapted({"q_proj("})).find("is no regular expression") != std::string::npos);
  ModelConfig frozen = Adapted({"language_model.*q_proj"});
  frozen.lora.without = {"llm"};
  CHECK(Message(frozen) ==
        "model.adapter.targets: 'language_model.*q_proj' matches layers of llm alone, which "
        "model.freeze keeps without adapters; take it out of model.freeze");
  frozen.lora.targets = {"embed_tokens"};
  CHECK(Message(frozen).find("takes an adapter") != std::string::npos);
  ModelConfig train = Adapted({"q_proj"});
  train.lora.train = {"resampler"};
  CHECK(Message(train).find("model.adapter.train: 'resampler' matches no module") !=
        std::string::npos);
  train.text.tie_word_embeddings = true;
  train.lora.train = {"lm_head"};
  CHECK(Message(train).find("'lm_head' matches no module") != std::string::npos);
  CHECK(Message(train).find("such as language_model.lm_head") == std::string::npos);
  for (const char* part : {"k_proj", "language_model.*up_proj", "language_model.*(q|k)_proj"}) {
    INFO(part);
    train.lora.train = {part};
    CHECK(Message(train).find("one product of their input; name both, or neither") !=
          std::string::npos);
  }
}

TEST_CASE("weight gradients of a frozen base cost nothing", "[lora]") {
  const LayerLoad load = {.tokens = 4096, .token_pairs = 4096.0 * 4096 / 2, .targets = 1000};
  const ModelConfig plain = Model(), adapted = Adapted({"all-linear"});
  const std::vector<LayerSpec> before = LayerSpecs(plain), after = LayerSpecs(adapted);
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].kind != kDecoderBlock) continue;
    // Input gradients alone, and about 1 % for the adapters.
    const double share = after[i].BackwardFlops(load) / before[i].BackwardFlops(load);
    CHECK(share > 0.5);
    CHECK(share < 0.6);
    CHECK(after[i].ForwardFlops(load) > before[i].ForwardFlops(load));
    CHECK(after[i].ForwardFlops(load) < 1.02 * before[i].ForwardFlops(load));
  }
}

TEST_CASE("NF4 takes a quarter of bf16 and an eighth of a byte", "[lora]") {
  ModelConfig config = Adapted({"all-linear"});
  config.quantize = {Packing::kNf4, {"llm"}};
  for (const LayerSpec& spec : LayerSpecs(config)) {
    if (spec.kind != kDecoderBlock) continue;
    const double base = static_cast<double>(spec.parameter_count() - spec.trained_count());
    const double bytes = static_cast<double>(spec.LargestBytes(1, 2) - 2 * spec.trained_count());
    CHECK(bytes / base == Approx(0.516).epsilon(0.01));
  }
}

TEST_CASE("GPTQ takes half a byte, and three of each group", "[lora]") {
  ModelConfig config = Adapted({"all-linear"});
  config.quantize = {Packing::kGptq, {"llm"}, {.group_size = 128}};
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (tensor.packing == Packing::kNone) continue;
      const int64_t out = tensor.shape[0], in = tensor.shape[1];
      const int64_t groups = (in + 127) / 128;
      CHECK(tensor.LargestBytes(1, 2) == out * in / 2 + 3 * out * groups + 4 * in);
      const int64_t half = tensor.LargestBytes(2, 2);
      CHECK(2 * half >= tensor.LargestBytes(1, 2));
      CHECK(2 * half < tensor.LargestBytes(1, 2) + 6 * out + 8 * in);
    }
  }
}

TEST_CASE("without adapters all of a packed model is frozen", "[lora]") {
  ModelConfig config = Model();
  config.quantize = {Packing::kGptq, {"llm"}, {}};
  int64_t packed = 0;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    CHECK(spec.trained_count() == 0);
    for (const TensorSpec& tensor : spec.parameters) {
      if (tensor.packing == Packing::kGptq) ++packed;
    }
  }
  CHECK(packed == 7 * config.text.num_hidden_layers);
}

TEST_CASE("adapters have PEFT's names", "[lora]") {
  const ModelConfig config = Adapted({"q_proj"});
  CHECK(PeftName(config, "language_model.model.layers.3.self_attn.q_proj.lora_A.weight")
            .ends_with("layers.3.self_attn.q_proj.lora_A.weight"));
  CHECK(PeftName(config,
                 "language_model.model.layers.3.self_attn.q_proj.lora_magnitude_vector.weight")
            .ends_with("q_proj.lora_magnitude_vector"));
  // Transformers 4's, which PEFT renames for version 5.
  const std::string layer = "encoder.layers.3.self_attn.q_proj.lora_A.weight";
  CHECK(PeftName(PresetConfig("llava_onevision-0.5b"), "vision_tower." + layer) ==
        "base_model.model.model.vision_tower.vision_model." + layer);
}

}  // namespace
}  // namespace equipoise
