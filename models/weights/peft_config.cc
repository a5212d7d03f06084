#include "models/weights/peft_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <utility>

#include "configs/base/error.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/weights/safetensors_file.h"

namespace equipoise {
namespace {

constexpr char kPrefix[] = "base_model.model.";
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
  const auto refuse = [&](const char* key, const char* what) {
    throw DataError(fmt::format("{}: {}: {}", path, key, what));
  };
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    if (json.contains(key) && !json[key].empty())
      refuse(key, "one rank and one alpha for all layers are supported; leave it empty");
  }
  for (const char* key : {"lora_bias", "fan_in_fan_out", "use_qalora", "use_bdlora"}) {
    if (json.contains(key) && json[key].is_boolean() && json[key].get<bool>())
      refuse(key, "is not supported; set it to false");
  }
  for (const char* key : {"layer_replication", "trainable_token_indices", "target_parameters"}) {
    if (json.contains(key) && !json[key].is_null() && !json[key].empty())
      refuse(key, "is not supported; train the adapter without it");
  }
  if (GetString(json, "bias", path, "none") != "none")
    refuse("bias", "trained biases are not supported; use none");
}

// Last parts of names, such as q_proj, where these mean the same layers as the names do; else the
// names.
std::vector<std::string> TargetModules(const ModelConfig& config) {
  ModelConfig bare = config;
  bare.lora = {};
  const WeightNames names = WeightNamesOf(config);
  std::set<std::string> adapted, short_names, others;
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (!tensor.name.ends_with(kA)) continue;
      const std::string layer = tensor.name.substr(0, tensor.name.size() - sizeof(kA) + 1);
      adapted.insert(layer);
      short_names.insert(last(layer));
    }
  }
  std::set<std::string> full;
  bool exact = true;
  for (const std::string& layer : adapted) full.insert(names.InMemory(layer));
  for (const LayerSpec& spec : LayerSpecs(bare)) {
    for (const TensorSpec& tensor : spec.parameters) {
      const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
      if (short_names.count(last(module)) > 0 && adapted.count(module) == 0) exact = false;
    }
  }
  const std::set<std::string>& chosen = exact ? short_names : full;
  return {chosen.begin(), chosen.end()};
}

std::set<std::string> TrainedModules(const ModelConfig& config) {
  std::set<std::string> modules;
  const WeightNames names = WeightNamesOf(config);
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (tensor.role == ParameterRole::kWeight)
        modules.insert(names.InMemory(tensor.name.substr(0, tensor.name.rfind('.'))));
    }
  }
  return modules;
}

}  // namespace

std::string PeftConfigFile(const std::string& folder) { return folder + "/adapter_config.json"; }

std::string PeftTensorFile(const std::string& folder) {
  return folder + "/adapter_model.safetensors";
}

std::string NameFromPeft(const WeightNames& names, std::string key) {
  const std::string prefix = kPrefix, vector = ".lora_magnitude_vector";
  if (key.starts_with(prefix)) key = key.substr(prefix.size());
  if (key.ends_with(vector)) key += ".weight";
  return names.Canonical(key);
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
  const WeightNames names = WeightNamesOf(model);
  const SafetensorsFile file(PeftTensorFile(folder));
  for (const auto& [key, entry] : file.header().entries) {
    const std::string name = NameFromPeft(names, key);
    if (name.ends_with(kA)) {
      lora.targets.push_back(ExactPattern(name.substr(0, name.size() - sizeof(kA) + 1)));
    } else if (name.find(".lora_") == name.npos) {
      lora.train.push_back(ExactPattern(name.substr(0, name.rfind('.'))));
    }
  }
  if (lora.targets.empty())
    throw DataError(file.path() + ": holds no tensor that is named ....lora_A.weight");
  return lora;
}

Json PeftConfigOf(const ModelConfig& config, const std::string& base) {
  const LoraConfig& lora = config.lora;
  const std::set<std::string> trained = TrainedModules(config);
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"target_modules", TargetModules(config)},
          {"r", lora.rank},
          {"lora_alpha", lora.alpha},
          {"lora_dropout", lora.dropout},
          {"use_rslora", lora.rslora},
          {"use_dora", lora.dora},
          {"modules_to_save", trained.empty() ? Json() : Json(trained)},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"init_lora_weights", true},
          {"inference_mode", true}};
}

}  // namespace equipoise
