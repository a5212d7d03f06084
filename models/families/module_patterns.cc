#include "models/families/module_patterns.h"

#include <fmt/format.h>

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr char kAllLinear[] = "all-linear";

// The one name that a text matches, in which all dots are escaped; empty: it is another regular
// expression.
std::string Literal(const std::string& text) {
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "\\.") == 0) {
      name += text[++i];
    } else if (std::string("\\^$|()[]{}*+?.").find(text[i]) == std::string::npos) {
      name += text[i];
    } else {
      return "";
    }
  }
  return name;
}

std::regex Compiled(const std::string& text, const std::string& key) {
  try {
    return std::regex("(?:.*\\.)?(?:" + text + ")", std::regex::optimize);
  } catch (const std::regex_error& error) {
    throw ConfigError(
        fmt::format("{}: '{}' is no regular expression: {}", key, text, error.what()));
  }
}

// The module around one; empty: there is none.
std::string Outer(const std::string& module) {
  const size_t dot = module.rfind('.');
  return dot == module.npos ? "" : module.substr(0, dot);
}

}  // namespace

ModulePatterns::ModulePatterns(const std::vector<std::string>& texts, const std::string& key) {
  for (const std::string& text : texts) {
    whole_.insert(text);
    if (text == kAllLinear) {
      all_ = true;
    } else if (const std::string name = Literal(text); !name.empty()) {
      names_.insert(name);
      whole_.insert(name);
    } else {
      expressions_.push_back(Compiled(text, key));
    }
  }
}

bool ModulePatterns::Match(const std::string& module, const WeightNames& names) const {
  if (whole_.empty()) return false;
  const FileWeight place = names.ModuleInMemory(module);
  if (MatchOurs(place.name)) return true;
  return place.rows.whole() ? MatchOurs(module) : whole_.count(module) > 0;
}

bool ModulePatterns::MatchWithin(const std::string& parameter, const WeightNames& names) const {
  const std::string module = ModuleOf(parameter);
  if (Match(module, names)) return true;
  for (std::string outer = Outer(module); !outer.empty(); outer = Outer(outer)) {
    if (Match(outer, names)) return true;
  }
  for (std::string theirs = ModuleInCode(parameter, names); !theirs.empty();
       theirs = Outer(theirs)) {
    if (MatchOurs(theirs)) return true;
  }
  return false;
}

bool ModulePatterns::MatchOurs(const std::string& module) const {
  for (size_t at = 0; !names_.empty() && at != std::string::npos;) {
    if (names_.count(module.substr(at)) > 0) return true;
    const size_t dot = module.find('.', at);
    at = dot == std::string::npos ? dot : dot + 1;
  }
  return std::any_of(expressions_.begin(), expressions_.end(),
                     [&module](const std::regex& each) { return std::regex_match(module, each); });
}

std::vector<LinearSpec> TargetsOf(const LayerSpec& spec, const ModulePatterns& patterns,
                                  const WeightNames& names,
                                  const std::vector<std::string>& without) {
  std::vector<LinearSpec> targets;
  if (spec.unused || IsAmong(spec, without)) return targets;
  for (const LinearSpec& linear : spec.linear_layers) {
    if (patterns.all() || patterns.Match(spec.name + "." + linear.suffix, names))
      targets.push_back(linear);
  }
  return targets;
}

std::string ModuleOf(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::string ModuleInCode(const std::string& parameter, const WeightNames& names) {
  return ModuleOf(names.ModuleInMemory(parameter).name);
}

}  // namespace equipoise
