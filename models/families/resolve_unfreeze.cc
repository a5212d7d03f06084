#include "models/families/resolve_unfreeze.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/nearest.h"
#include "models/families/families.h"
#include "models/families/module_patterns.h"
#include "models/families/modules.h"
#include "models/families/named_modules.h"

namespace equipoise {
namespace {

constexpr char kKey[] = "model.unfreeze";

[[noreturn]] void Fail(const std::string& text, const std::string& why) {
  throw ConfigError(fmt::format("{}: {}: {}", kKey, text, why));
}

[[noreturn]] void FailNotFrozen(const std::string& text, const std::string& component) {
  Fail(text, fmt::format("{0} is not in model.freeze: all of it is trained; add {0} there, or "
                         "leave this out",
                         component));
}

// A bound of a slice; nullopt where it is left out.
std::optional<int64_t> Bound(const std::string& text, const std::string& number) {
  if (number.empty()) return std::nullopt;
  int64_t value = 0;
  const char* end = number.data() + number.size();
  const std::from_chars_result read = std::from_chars(number.data(), end, value);
  if (read.ec == std::errc() && read.ptr == end) return value;
  Fail(text, fmt::format("{} is no number of a block", number));
}

bool IsComponent(const std::string& name) {
  return name == ComponentName(Component::kEncoder) ||
         name == ComponentName(Component::kConnector) ||
         name == ComponentName(Component::kLanguageModel);
}

struct Frozen {
  NamedModules modules;
  std::vector<std::string> components;

  bool Has(const std::string& component) const {
    return std::find(components.begin(), components.end(), component) != components.end();
  }
};

// Adds all modules of a component's blocks from one to another, and says whether the text is of
// this form at all.
bool AddSlice(const std::string& text, const ModelConfig& plain, const Frozen& frozen,
              std::set<std::string>* found) {
  static const std::regex kForm("([A-Za-z_]+)\\[([^\\]]*)\\]"), kSlice("(-?[0-9]*):(-?[0-9]*)");
  std::smatch form, slice;
  if (!std::regex_match(text, form, kForm)) return false;
  const std::string component = form[1], within = form[2];
  const bool is_slice = std::regex_match(within, slice, kSlice);
  if (!is_slice && !IsComponent(component)) return false;  // a regular expression
  CheckModules(plain, {component}, fmt::format("{}: {}", kKey, text));
  if (!is_slice || slice[1] == "-" || slice[2] == "-") {
    Fail(text, fmt::format("is no slice of blocks; write {0}[-8:] for the last eight, {0}[:4] for "
                           "the first four",
                           component));
  }
  if (!frozen.Has(component)) FailNotFrozen(text, component);
  std::vector<const LayerSpec*> blocks;
  for (const LayerSpec& spec : frozen.modules.specs) {
    if (component == ComponentName(spec.component) && spec.has_halves && !spec.unused)
      blocks.push_back(&spec);
  }
  if (blocks.empty()) {
    Fail(text, fmt::format("{} has no blocks; name its modules, such as {}", component,
                           frozen.modules.Examples()));
  }
  const auto count = static_cast<int64_t>(blocks.size());
  const auto place = [count](int64_t bound) {
    return std::clamp<int64_t>(bound < 0 ? count + bound : bound, 0, count);
  };
  const int64_t begin = place(Bound(text, slice[1]).value_or(0));
  const int64_t end = place(Bound(text, slice[2]).value_or(count));
  if (begin >= end) {
    Fail(text, fmt::format("selects none of the {} blocks of {}; they are numbered from 0, or from "
                           "the end, as {}[-1:]",
                           count, component, component));
  }
  for (int64_t i = begin; i < end; ++i) {
    for (const TensorSpec& tensor : blocks[static_cast<size_t>(i)]->parameters)
      found->insert(ModuleOf(tensor.name));
  }
  return true;
}

[[noreturn]] void FailName(const std::string& text, const ModulePatterns& pattern,
                           const NamedModules& modules) {
  RefusePart(kKey, text, pattern, modules);
  std::vector<std::string> known;
  for (const LayerSpec& spec : modules.specs) {
    if (spec.unused || IsAmong(spec, modules.without)) continue;
    std::vector<std::string> names;
    for (const TensorSpec& tensor : spec.parameters)
      names.push_back(ModuleInCode(tensor.name, modules.names));
    if (!spec.tied.name.empty()) names.push_back(spec.name);
    for (const std::string& name : names) {
      known.push_back(name.substr(name.rfind('.') + 1));
      known.push_back(name);
    }
  }
  const std::string near = NearestName(text, known);
  Fail(text, near.empty()
                 ? fmt::format("matches no module of this model; names are such as {}, and those "
                               "of modules around them; blocks are written as vision[-8:]",
                               modules.Examples())
                 : fmt::format("matches no module of this model; did you mean '{}'?", near));
}

// Adds the modules that a name or a regular expression means.
void AddNamed(const std::string& text, const Frozen& frozen, std::set<std::string>* found) {
  const NamedModules& modules = frozen.modules;
  if (IsComponent(text)) {
    Fail(text, fmt::format("is all of it; take {0} out of model.freeze, or name blocks, as "
                           "{0}[-8:], or modules",
                           text));
  }
  const ModulePatterns pattern({text}, kKey);
  bool any = false;
  std::string elsewhere;  // a component
  for (const LayerSpec& spec : modules.specs) {
    if (spec.unused) continue;
    const auto add = [&](const std::string& parameter, const std::string& module) {
      if (!pattern.MatchWithin(parameter, modules.names)) return;
      if (IsAmong(spec, frozen.components)) {
        found->insert(module);
        any = true;
      } else {
        elsewhere = ComponentName(spec.component);
      }
    };
    for (const TensorSpec& tensor : spec.parameters) add(tensor.name, ModuleOf(tensor.name));
    if (!spec.tied.name.empty()) add(spec.name + ".weight", ModuleOf(spec.tied.name));
  }
  if (any) return;
  if (!elsewhere.empty()) FailNotFrozen(text, elsewhere);
  FailName(text, pattern, modules);
}

}  // namespace

void ResolveUnfreeze(const std::vector<std::string>& texts, const std::vector<std::string>& frozen,
                     ModelConfig* config) {
  config->unfreeze.clear();
  if (texts.empty()) return;
  std::vector<LayerSpec> specs = LayerSpecs(*config);
  std::vector<std::string> others;  // components that are not frozen
  for (const LayerSpec& spec : specs) {
    if (!IsAmong(spec, frozen)) others.emplace_back(ComponentName(spec.component));
  }
  const Frozen given = {{std::move(specs), WeightNamesOf(*config), std::move(others)}, frozen};
  std::set<std::string> found;
  for (const std::string& text : texts) {
    if (!AddSlice(text, *config, given, &found)) AddNamed(text, given, &found);
  }
  CheckGroups(kKey, found, given.modules.specs);
  config->unfreeze = std::move(found);
}

}  // namespace equipoise
