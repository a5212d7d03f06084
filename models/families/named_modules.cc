#include "models/families/named_modules.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {

std::string NamedModules::Examples() const {
  std::vector<std::string> found;
  std::set<Component> seen;
  for (const LayerSpec& spec : specs) {
    if (spec.unused || spec.linear_layers.empty() || IsAmong(spec, without)) continue;
    if (!seen.insert(spec.component).second) continue;
    found.push_back(names.ModuleInMemory(spec.name + "." + spec.linear_layers[0].suffix).name);
  }
  std::string text;
  for (size_t i = 0; i < found.size(); ++i) {
    if (i > 0) text += i + 1 == found.size() ? " and " : ", ";
    text += found[i];
  }
  return text;
}

std::set<std::string> ModulesWithin(const ModulePatterns& pattern, const NamedModules& modules) {
  std::set<std::string> found;
  for (const LayerSpec& spec : modules.specs) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (pattern.MatchWithin(tensor.name, modules.names)) found.insert(ModuleOf(tensor.name));
    }
  }
  return found;
}

void CheckGroups(const std::string& key, const std::set<std::string>& trained,
                 const std::vector<LayerSpec>& specs) {
  for (const LayerSpec& spec : specs) {
    std::map<int, std::pair<std::string, std::string>> groups;  // a name that is trained, one not
    for (const LinearSpec& linear : spec.linear_layers) {
      const std::string name = spec.name + "." + linear.suffix;
      auto& [with, without] = groups[linear.group];
      (trained.count(name) > 0 ? with : without) = name;
      if (with.empty() || without.empty()) continue;
      throw ConfigError(fmt::format(
          "{}: {} is trained in full and {} is not, but they are one product of their input; "
          "name both, or neither",
          key, with, without));
    }
  }
}

void RefusePart(const std::string& key, const std::string& text, const ModulePatterns& pattern,
                const NamedModules& modules) {
  std::string example, instead;
  std::set<std::string> seen;
  for (const LayerSpec& spec : modules.specs) {
    if (spec.unused || IsAmong(spec, modules.without)) continue;
    for (const LinearSpec& linear : spec.linear_layers) {
      const std::string name = spec.name + "." + linear.suffix;
      const FileWeight place = modules.names.ModuleInMemory(name);
      if (place.rows.whole() || !pattern.MatchOurs(name)) continue;
      if (example.empty()) example = place.name;
      const size_t last = place.name.rfind('.'), before = place.name.rfind('.', last - 1);
      const std::string fused = place.name.substr(before + 1);
      if (seen.insert(fused).second) instead += (instead.empty() ? "" : " or ") + fused;
    }
  }
  if (example.empty()) return;
  throw ConfigError(
      fmt::format("{}: '{}' is a part of {} in the model's own code, which is one layer there and "
                  "to PEFT; write {}, which means all parts",
                  key, text, example, instead));
}

}  // namespace equipoise
