#pragma once

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "models/spec/layer_spec.h"
#include "models/spec/weight_names.h"

namespace equipoise {

// Names of modules that a user gives: names as a whole or from one of their dots on, regular
// expressions that match such a name, or all-linear. LibTorch-free.
class ModulePatterns {
 public:
  // Throws ConfigError that begins with `key` for what is no regular expression.
  ModulePatterns(const std::vector<std::string>& texts, const std::string& key);

  bool all() const { return all_; }
  // Whether a module (our name) is meant, by the name that it has in the model's own code or by
  // ours. One that is a part of a fused module there, as q_proj is of attn.qkv, is meant by the
  // fused module's name, as PEFT matches it, and else by its own whole name alone: q_proj means
  // the decoder's layers of that name to all users of PEFT, not a third of the encoder's qkv.
  bool Match(const std::string& module, const WeightNames& names) const;
  // The same, but of a module that holds a parameter (our name) at any depth.
  bool MatchWithin(const std::string& parameter, const WeightNames& names) const;
  // Whether one of our names matches by itself, that of a part as well.
  bool MatchOurs(const std::string& module) const;

 private:
  bool all_ = false;
  std::set<std::string> names_, whole_;  // of any depth, and of a module's whole name alone
  std::vector<std::regex> expressions_;
};

// The linear layers of `spec` that are targets, none of a component in `without`.
std::vector<LinearSpec> TargetsOf(const LayerSpec& spec, const ModulePatterns& patterns,
                                  const WeightNames& names,
                                  const std::vector<std::string>& without);

// The module of a parameter.
std::string ModuleOf(const std::string& parameter);
// The name of that in the code that loads the model's folder.
std::string ModuleInCode(const std::string& parameter, const WeightNames& names);

}  // namespace equipoise
