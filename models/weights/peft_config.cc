#include "models/weights/peft_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/families/module_patterns.h"
#include "models/weights/peft_layers.h"
#include "models/weights/safetensors_file.h"

namespace equipoise {
namespace {

constexpr char kA[] = ".lora_A.weight";

void RequireFolder(const std::string& folder) {
  for (const std::string& file : {PeftConfigFile(folder), PeftTensorFile(folder)}) {
    if (std::filesystem::exists(file)) continue;
    throw DataError(file +
                    ": no such file; give a folder that PEFT's save_pretrained() has written");
  }
}

// Settings whose meaning differs from ours when they are set.
void RefuseOtherKinds(const Json& json, const std::string& path) {
  const std::string kind = GetString(json, "peft_type", path);
  if (kind != "LORA")
    throw DataError(fmt::format("{}: peft_type: '{}' is not supported; use LORA", path, kind));
  const auto refuse = [&](const char* key, const std::string& what) {
    throw DataError(fmt::format("{}: {}: {}", path, key, what));
  };
  for (const char* key : {"lora_bias", "fan_in_fan_out", "use_qalora", "use_bdlora"}) {
    if (json.contains(key) && json[key].is_boolean() && json[key].get<bool>())
      refuse(key, "is not supported; set it to false");
  }
  for (const char* key : {"layer_replication", "trainable_token_indices", "target_parameters",
                          "alora_invocation_tokens"}) {
    if (json.contains(key) && !json[key].is_null() && !json[key].empty())
      refuse(key, "is not supported; train the adapter without it");
  }
  if (GetString(json, "bias", path, "none") != "none")
    refuse("bias", "trained biases are not supported; use none");
  if (!json.contains("init_lora_weights") || !json["init_lora_weights"].is_string()) return;
  // PEFT takes what these begin with out of the base's weights, also when it loads an adapter.
  const auto first = json["init_lora_weights"].get<std::string>();
  for (const char* kind : {"pissa", "corda", "olora", "loftq", "lora_ga"}) {
    if (!first.starts_with(kind)) continue;
    refuse("init_lora_weights",
           "'" + ShownText(first) +
               "' has changed the base's weights; save it as plain LoRA, by PEFT's "
               "save_pretrained(..., path_initial_model_for_weight_conversion=...)");
  }
}

// Ranks and alphas of those layers of PEFT's model that hold several adapters of ours: as many
// ranks, at the scale of one. `counts`: adapters by layer.
Json Patterns(const LoraConfig& lora, const std::map<std::string, size_t>& counts) {
  Json json = {{"rank_pattern", Json::object()}, {"alpha_pattern", Json::object()}};
  for (const auto& [name, count] : counts) {
    if (count == 1) continue;
    const auto n = static_cast<double>(count);
    json["rank_pattern"][name] = lora.rank * static_cast<int64_t>(count);
    json["alpha_pattern"][name] = lora.alpha * (lora.rslora ? std::sqrt(n) : n);
  }
  return json;
}

// Refuses all patterns but those that are written here.
void CheckPatterns(const Json& json, const Json& expected, const std::string& path) {
  for (const auto& [key, ours] : expected.items()) {
    const Json theirs = json.contains(key) && !json[key].is_null() ? json[key] : Json::object();
    bool is_equal = theirs.is_object() && theirs.size() == ours.size();
    for (const auto& [name, value] : ours.items()) {
      is_equal = is_equal && theirs.contains(name) && theirs[name].is_number() &&
                 std::abs(theirs[name].get<double>() / value.get<double>() - 1) < 1e-9;
    }
    if (is_equal) continue;
    throw DataError(
        fmt::format("{}: {}: one rank and one alpha for all layers are supported; "
                    "leave it empty, or merge the adapter by PEFT's merge_and_unload()",
                    path, key));
  }
}

// Last parts of names, such as q_proj, where these mean the same layers as the names do; else the
// names, or those within the encoder where its versions differ in its own. A number alone means any
// module of a list to PEFT.
std::vector<std::string> TargetModules(const ModelConfig& config) {
  ModelConfig bare = config;
  bare.lora = {};
  const WeightNames names = WeightNamesOf(config);
  std::set<std::string> adapted, short_names, long_names;
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (!tensor.name.ends_with(kA)) continue;
      const std::string layer = tensor.name.substr(0, tensor.name.size() - sizeof(kA) + 1);
      const std::string theirs = names.ModuleInMemory(layer).name;
      adapted.insert(theirs);
      const bool versions_differ = PeftLayer(config, layer) != names.InMemory(layer);
      long_names.insert(versions_differ ? layer.substr(layer.find('.') + 1) : theirs);
      short_names.insert(last(theirs));
    }
  }
  bool exact = std::none_of(short_names.begin(), short_names.end(), [](const std::string& name) {
    return name.find_first_not_of("0123456789") == name.npos;
  });
  for (const LayerSpec& spec : LayerSpecs(bare)) {
    for (const TensorSpec& tensor : spec.parameters) {
      const std::string module =
          names.ModuleInMemory(tensor.name.substr(0, tensor.name.rfind('.'))).name;
      if (short_names.count(last(module)) > 0 && adapted.count(module) == 0) exact = false;
    }
  }
  const std::set<std::string>& chosen = exact ? short_names : long_names;
  return {chosen.begin(), chosen.end()};
}

// Whether `name` is of something within a module.
bool IsWithin(const std::string& name, const std::string& module) {
  return name.starts_with(module) && name[module.size()] == '.';
}

// The modules of weights that are trained in full. PEFT wraps each of them, and one in another
// twice, which it could not read back: the outer one stands for both. Throws ConfigError where a
// module would be wrapped of which a weight is not trained.
std::set<std::string> TrainedModules(const ModelConfig& config) {
  const WeightNames names = WeightNamesOf(config);
  std::set<std::string> modules;
  std::vector<std::pair<std::string, std::string>> frozen;  // in PEFT's model, and as shown
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (tensor.role == ParameterRole::kWeight) {
        modules.insert(ModuleInCode(tensor.name, names));
      } else if (tensor.role == ParameterRole::kBase) {
        frozen.emplace_back(names.ModuleInMemory(tensor.name).name, names.InMemory(tensor.name));
      }
    }
  }
  std::set<std::string> outer;
  for (const std::string& module : modules) {
    const bool is_inner = std::any_of(modules.begin(), modules.end(), [&](const std::string& each) {
      return IsWithin(module, each);
    });
    if (is_inner) continue;
    outer.insert(module);
    for (const auto& [weight, shown] : frozen) {
      if (!IsWithin(weight, module)) continue;
      throw ConfigError(fmt::format(
          "model.adapter.train: PEFT trains all of {} or nothing, and {} is not trained; export "
          "with --merge",
          module, shown));
    }
  }
  return outer;
}

}  // namespace

std::string PeftConfigFile(const std::string& folder) { return folder + "/adapter_config.json"; }

std::string PeftTensorFile(const std::string& folder) {
  return folder + "/adapter_model.safetensors";
}

LoraConfig ReadPeftConfig(const std::string& folder, const ModelConfig& model) {
  RequireFolder(folder);
  const std::string path = PeftConfigFile(folder);
  const Json json = ReadJsonFile(path);
  if (!json.is_object()) throw DataError(path + ": not a JSON object");
  RefuseOtherKinds(json, path);
  LoraConfig lora;
  lora.rank = GetInt(json, "r", path);
  if (lora.rank < 1) throw DataError(fmt::format("{}: r: {} is no rank", path, lora.rank));
  lora.alpha = GetNumber(json, "lora_alpha", path);
  const auto flag = [&json](const char* key) {
    return json.contains(key) && json[key].is_boolean() && json[key].get<bool>();
  };
  lora.rslora = flag("use_rslora");
  lora.dora = flag("use_dora");
  const SafetensorsFile file(PeftTensorFile(folder));
  std::map<std::string, size_t> counts;
  for (const auto& [name, parts] : FusedInFile(file.header(), file.path()))
    counts[name] = parts.size();
  CheckPatterns(json, Patterns(lora, counts), path);
  for (const auto& [name, tensor] : TensorsFromPeft(model, file.header(), file.path())) {
    if (name.ends_with(kA)) {
      lora.targets.push_back(ExactPattern(name.substr(0, name.size() - sizeof(kA) + 1)));
    } else if (name.find(".lora_") == name.npos) {
      lora.train.push_back(ExactPattern(name.substr(0, name.rfind('.'))));
    }
  }
  const std::string embedding = LayerSpecs(model).back().tied.name;
  const std::string module = embedding.substr(0, embedding.rfind('.'));
  const bool trained = !embedding.empty() && std::find(lora.train.begin(), lora.train.end(),
                                                       ExactPattern(module)) != lora.train.end();
  if (trained && !flag("ensure_weight_tying")) {
    throw DataError(fmt::format(
        "{}: ensure_weight_tying: is not set, so that PEFT's head is not the embedding that was "
        "trained, and this model ties them; train or export the adapter again with it",
        path));
  }
  if (lora.targets.empty())
    throw DataError(file.path() + ": holds no tensor that is named ....lora_A.weight");
  return lora;
}

Json PeftConfigOf(const ModelConfig& config, const std::string& base) {
  const LoraConfig& lora = config.lora;
  const std::set<std::string> trained = TrainedModules(config);
  std::map<std::string, size_t> counts;
  for (const auto& [name, parts] : FusedAdaptersOf(config)) counts[name] = parts.size();
  Json json = {{"peft_type", "LORA"},
               {"task_type", "CAUSAL_LM"},
               {"base_model_name_or_path", base},
               {"target_modules", TargetModules(config)},
               {"r", lora.rank},
               {"lora_alpha", lora.alpha},
               {"lora_dropout", lora.dropout},
               {"use_rslora", lora.rslora},
               {"use_dora", lora.dora},
               {"modules_to_save", trained.empty() ? Json() : Json(trained)},
               {"ensure_weight_tying", !TrainedTiedHead(config).empty()},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"init_lora_weights", true},
               {"inference_mode", true}};
  json.update(Patterns(lora, counts));
  return json;
}

}  // namespace equipoise
