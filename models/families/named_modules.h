#pragma once

#include <set>
#include <string>
#include <vector>

#include "models/families/module_patterns.h"
#include "models/spec/layer_spec.h"
#include "models/spec/weight_names.h"

namespace equipoise {

// The modules of a model that a user's names may mean. LibTorch-free.
struct NamedModules {
  std::vector<LayerSpec> specs;
  WeightNames names;
  std::vector<std::string> without;  // components of which none is meant

  // The first linear layer of each other component, as the model's own code has it.
  std::string Examples() const;
};

// Modules with a weight that match, or that lie in a module that does, as in PEFT's
// modules_to_save.
std::set<std::string> ModulesWithin(const ModulePatterns& pattern, const NamedModules& modules);

// Refuses to train a part of a group in full: one product has all its weights' gradients or none.
// Throws ConfigError that begins with `key`.
void CheckGroups(const std::string& key, const std::set<std::string>& trained,
                 const std::vector<LayerSpec>& specs);

// Refuses our name of a part of a module that the model's own code, and so PEFT, has as one; else
// does nothing. Throws ConfigError that begins with `key`.
void RefusePart(const std::string& key, const std::string& text, const ModulePatterns& pattern,
                const NamedModules& modules);

}  // namespace equipoise
