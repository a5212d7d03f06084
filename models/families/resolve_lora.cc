#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/families/module_patterns.h"
#include "models/families/named_modules.h"

// What the names of adapters' layers stand for, and what is said of names that stand for nothing.

namespace equipoise {
namespace {

// Modules with a weight whose names match.
std::set<std::string> ModulesThatMatch(const ModulePatterns& pattern, const NamedModules& modules) {
  std::set<std::string> found;
  for (const LayerSpec& spec : modules.specs) {
    for (const TensorSpec& tensor : spec.parameters) {
      const std::string module = ModuleOf(tensor.name);
      if (pattern.Match(module, modules.names)) found.insert(module);
    }
  }
  return found;
}

// "a, b" of "a,b".
std::string WithSpaces(const std::string& names) {
  std::string text;
  for (const char c : names) {
    if (c != ' ') text += c == ',' ? std::string(", ") : std::string(1, c);
  }
  return text;
}

[[noreturn]] void FailTarget(const std::string& key, const std::string& text,
                             const ModulePatterns& pattern, const NamedModules& modules) {
  // As other trainers write them.
  if (text == "all") {
    throw ConfigError(fmt::format(
        "{}.targets: '{}' matches no layer; write all-linear for all of them", key, text));
  }
  if (text.find(',') != std::string::npos && text.find_first_of("\\()[]{}*+?") == text.npos) {
    throw ConfigError(fmt::format("{}.targets: '{}' is one name; write a list: [{}]", key, text,
                                  WithSpaces(text)));
  }
  for (const LayerSpec& spec : modules.specs) {
    if (pattern.all() || !IsAmong(spec, modules.without)) continue;
    if (TargetsOf(spec, pattern, modules.names, {}).empty()) continue;
    throw ConfigError(fmt::format(
        "{}.targets: '{}' matches layers of {} alone, which model.freeze keeps without adapters; "
        "take it out of model.freeze",
        key, text, ComponentName(spec.component)));
  }
  const std::set<std::string> others = ModulesThatMatch(pattern, modules);
  if (!others.empty()) {
    throw ConfigError(fmt::format(
        "{}.targets: '{}' matches {}, which is no linear layer that takes an adapter; name those "
        "of blocks and projector",
        key, text, *others.begin()));
  }
  if (pattern.all()) {
    throw ConfigError(fmt::format(
        "{}.targets: all-linear: no linear layer is left; take a module out of model.freeze", key));
  }
  RefusePart(key + ".targets", text, pattern, modules);
  throw ConfigError(
      fmt::format("{}.targets: '{}' matches no layer of this model; linear layers have names such "
                  "as {}",
                  key, text, modules.Examples()));
}

[[noreturn]] void FailTrain(const std::string& key, const std::string& text,
                            const ModulePatterns& pattern, const NamedModules& modules) {
  RefusePart(key + ".train", text, pattern, modules);
  throw ConfigError(fmt::format(
      "{}.train: '{}' matches no module of this model; names are such as {}, and those of modules "
      "around them",
      key, text, modules.Examples()));
}

}  // namespace

void ResolveLora(const std::string& key, ModelConfig* config) {
  LoraConfig& lora = config->lora;
  if (!lora.on()) return;
  ModelConfig plain = *config;
  plain.lora = {};
  plain.quantize = {};
  const NamedModules modules = {LayerSpecs(plain), WeightNamesOf(*config), lora.without};
  std::set<std::string> targets, trained;
  for (const std::string& text : lora.targets) {
    const ModulePatterns pattern({text}, key + ".targets");
    size_t found = 0;
    for (const LayerSpec& spec : modules.specs) {
      for (const LinearSpec& linear : TargetsOf(spec, pattern, modules.names, lora.without)) {
        targets.insert(spec.name + "." + linear.suffix);
        ++found;
      }
    }
    if (found == 0) FailTarget(key, text, pattern, modules);
  }
  for (const std::string& text : lora.train) {
    const ModulePatterns pattern({text}, key + ".train");
    const std::set<std::string> found = ModulesWithin(pattern, modules);
    if (found.empty()) FailTrain(key, text, pattern, modules);
    trained.insert(found.begin(), found.end());
  }
  CheckGroups(key + ".train", trained, modules.specs);
  for (const std::string& name : trained) targets.erase(name);
  if (targets.empty()) {
    throw ConfigError(key +
                      ".targets: all of them are in 'train', which trains them in full; leave one "
                      "out of it, or name others");
  }
  lora.targets.clear();
  for (const std::string& name : targets) lora.targets.push_back(ExactPattern(name));
  lora.train.clear();
  for (const std::string& name : trained) lora.train.push_back(ExactPattern(name));
}

std::string DescribeLora(const ModelConfig& config) {
  if (!config.lora.on()) return "";
  const WeightNames names = WeightNamesOf(config);
  std::map<Component, std::set<std::string>> adapted;
  std::set<std::string> trained;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (const size_t end = tensor.name.find(".lora_A."); end != tensor.name.npos) {
        adapted[spec.component].insert(names.ModuleInMemory(tensor.name.substr(0, end)).name);
      } else if (tensor.role == ParameterRole::kWeight) {
        trained.insert(ModuleInCode(tensor.name, names));
      }
    }
  }
  const std::pair<Component, const char*> components[] = {
      {Component::kEncoder, "vision"},
      {Component::kConnector, "the projector"},
      {Component::kLanguageModel, "the language model"}};
  std::string text;
  for (const auto& [component, name] : components) {
    if (adapted[component].empty()) continue;
    text += text.empty() ? fmt::format("{} linear layers of {}", adapted[component].size(), name)
                         : fmt::format(", {} of {}", adapted[component].size(), name);
  }
  text =
      fmt::format("{} rank {} on {}", config.lora.dora ? "DoRA" : "LoRA", config.lora.rank, text);
  if (!trained.empty()) text += fmt::format("; modules trained in full: {}", trained.size());
  return text;
}

}  // namespace equipoise
