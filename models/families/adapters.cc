#include "models/families/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"

// The cost of adapters: two thin products a linear layer, whose weights alone have gradients. What
// is kept for these is the input of each group of linears that share it (where that is not kept
// anyway, as attention's result is) and its product with A; of the frozen weights nothing.

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

// Regular expressions that match a name as a whole or from one of its dots on.
class Patterns {
 public:
  Patterns(const std::vector<std::string>& texts, const std::string& key) {
    for (const std::string& text : texts) {
      if (text == kAllLinear) {
        all_ = true;
      } else if (const std::string name = Literal(text); !name.empty()) {
        names_.insert(name);
      } else {
        expressions_.push_back(Compiled(text, key));
      }
    }
  }

  bool all() const { return all_; }
  bool Match(const std::string& ours, const std::string& in_memory) const {
    return MatchOne(ours) || MatchOne(in_memory);
  }

 private:
  static std::regex Compiled(const std::string& text, const std::string& key) {
    try {
      return std::regex("(?:.*\\.)?(?:" + text + ")", std::regex::optimize);
    } catch (const std::regex_error& error) {
      throw ConfigError(
          fmt::format("{}: '{}' is no regular expression: {}", key, text, error.what()));
    }
  }

  bool MatchOne(const std::string& name) const {
    for (size_t at = 0; !names_.empty() && at != std::string::npos;) {
      if (names_.count(name.substr(at)) > 0) return true;
      const size_t dot = name.find('.', at);
      at = dot == std::string::npos ? dot : dot + 1;
    }
    return std::any_of(expressions_.begin(), expressions_.end(),
                       [&name](const std::regex& each) { return std::regex_match(name, each); });
  }

  bool all_ = false;
  std::set<std::string> names_;
  std::vector<std::regex> expressions_;
};

const TensorSpec& WeightOf(const LayerSpec& spec, const LinearSpec& linear) {
  const std::string name = spec.name + "." + linear.suffix + ".weight";
  const auto found =
      std::find_if(spec.parameters.begin(), spec.parameters.end(),
                   [&name](const TensorSpec& tensor) { return tensor.name == name; });
  EQUIPOISE_CHECK(found != spec.parameters.end(), name);
  return *found;
}

std::string ModuleOf(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

HalfCost& HalfOf(LayerSpec& spec, const LinearSpec& linear) {
  const bool mlp = !spec.has_halves || linear.suffix.starts_with("mlp.");
  return mlp ? spec.mlp : spec.attention;
}

PerRow RowsOf(const LayerSpec& spec, double number) {
  switch (spec.output.rows) {
    case RowKind::kPatches:
      return PerRow::Patches(number);
    case RowKind::kImageTokens:
      return PerRow::ImageTokens(number);
    case RowKind::kTokens:
      return PerRow::Tokens(number);
  }
  return {};
}

PerRow Sum(const PerRow& a, const PerRow& b) {
  return {a.per_patch + b.per_patch, a.per_image_token + b.per_image_token,
          a.per_token + b.per_token, a.per_target + b.per_target};
}

// Adds the costs of the adapters of linears that share their input.
void AddCosts(const std::vector<LinearSpec>& linears, const ModelConfig& config, int ranks,
              LayerSpec* spec) {
  const bool row = linears.front().row;
  HalfCost& half = HalfOf(*spec, linears.front());
  const auto rank = config.lora.rank * static_cast<int64_t>(linears.size());
  const TensorSpec& first = WeightOf(*spec, linears.front());
  const bool split = ranks > 1 && first.split.by != Split::By::kNothing;
  const int64_t in = row && split ? first.split.Largest(ranks) : first.shape[1];
  const PerRow one = RowsOf(*spec, 1);
  half.products.push_back({one, rank, in});
  for (const LinearSpec& linear : linears) {
    const TensorSpec& weight = WeightOf(*spec, linear);
    const int64_t out = !row && split ? weight.split.Largest(ranks) : weight.shape[0];
    half.products.push_back({one, out, config.lora.rank});
    // The output over its norm is kept for the magnitudes' gradients.
    if (config.lora.dora) half.saved = Sum(half.saved, RowsOf(*spec, static_cast<double>(out)));
  }
  const auto r = static_cast<double>(rank);
  // The result of attention is kept for its own backward.
  const bool kept_anyway = row && &half == &spec->attention;
  const double kept = r + (kept_anyway ? 0 : static_cast<double>(in));
  half.saved_weights = Sum(half.saved_weights, RowsOf(*spec, kept));
  const double whole = r + (row ? 0 : static_cast<double>(in));
  half.saved_whole = Sum(half.saved_whole, RowsOf(*spec, whole));
  // With dropout a copy of the input is kept.
  if (!kept_anyway && config.lora.dropout == 0)
    (row ? half.activations : half.norms) = RowsOf(*spec, static_cast<double>(in));
  if (!split) return;
  TensorAllReduce sum = {RowsOf(*spec, r)};
  sum.of_rows = spec->input.shared;
  (row ? half.all_reduces : half.gradient_all_reduces).push_back(sum);
  if (!sum.of_rows) return;
  half.row_exchanges.push_back(sum.elements);
  half.gradient_row_exchanges.push_back(sum.elements);
}

TensorSpec Adapter(const std::string& name, std::vector<int64_t> shape, const Init& init) {
  TensorSpec tensor = {name, std::move(shape), init, 0, {}};
  tensor.role = ParameterRole::kAdapter;
  return tensor;
}

// A's of linears that share their input first, so that they are neighbours in memory and their
// products one.
void AddParameters(const std::vector<LinearSpec>& linears, const LoraConfig& lora,
                   LayerSpec* spec) {
  std::vector<TensorSpec> as, bs;
  for (const LinearSpec& linear : linears) {
    const TensorSpec& weight = WeightOf(*spec, linear);
    const std::string name = ModuleOf(weight.name);
    const int64_t out = weight.shape[0], in = weight.shape[1];
    const Init kaiming = Init::Uniform(1 / std::sqrt(static_cast<double>(in)));
    as.push_back(Adapter(name + ".lora_A.weight", {lora.rank, in}, kaiming));
    bs.push_back(Adapter(name + ".lora_B.weight", {out, lora.rank}, Init::Zeros()));
    if (linear.row) {
      as.back().dim = 1;
      as.back().split = weight.split;
    } else {
      bs.back().split = weight.split;
    }
    if (!lora.dora) continue;
    bs.push_back(Adapter(name + ".lora_magnitude_vector.weight", {out}, Init::Ones()));
    if (!linear.row) bs.back().split = weight.split;
  }
  spec->parameters.insert(spec->parameters.end(), as.begin(), as.end());
  spec->parameters.insert(spec->parameters.end(), bs.begin(), bs.end());
}

// Whether a module's weights are trained themselves, in place of an adapter's.
bool IsTrainedInFull(const Patterns& train, const WeightNames& names, const std::string& module) {
  return train.Match(module, names.InMemory(module));
}

// Makes all of a layer a frozen base but what is trained in full, and packs its linear layers.
void MakeBase(const ModelConfig& config, const Patterns& train, const WeightNames& names,
              LayerSpec* spec) {
  const auto is_trained = [&](const TensorSpec& tensor) {
    return !spec->unused && IsTrainedInFull(train, names, ModuleOf(tensor.name));
  };
  for (TensorSpec& tensor : spec->parameters) {
    if (!is_trained(tensor)) tensor.role = ParameterRole::kBase;
  }
  if (!spec->tied.name.empty() && !is_trained(spec->tied)) spec->tied.role = ParameterRole::kBase;
  if (!IsAmong(*spec, config.quantize.components)) return;
  for (const LinearSpec& linear : spec->linear_layers) {
    const std::string name = WeightOf(*spec, linear).name;
    for (TensorSpec& tensor : spec->parameters) {
      if (tensor.name != name || tensor.role != ParameterRole::kBase) continue;
      tensor.packing = config.quantize.packing;
      tensor.gptq = config.quantize.gptq;
    }
  }
}

// Adapts one layer; `targets` says which of its linear layers.
void AddTo(const ModelConfig& config, int ranks, const std::vector<LinearSpec>& targets,
           LayerSpec* spec) {
  for (HalfCost* half : {&spec->attention, &spec->mlp}) {
    for (Product& product : half->products) product.frozen = true;
    half->saved_weights = half->saved_whole = half->norms = half->activations = {};
    half->weight_row_exchanges.clear();
  }
  std::string words;
  for (size_t begin = 0; begin < targets.size();) {
    size_t end = begin + 1;
    while (end < targets.size() && targets[end].group == targets[begin].group) ++end;
    const std::vector<LinearSpec> linears(targets.begin() + static_cast<std::ptrdiff_t>(begin),
                                          targets.begin() + static_cast<std::ptrdiff_t>(end));
    AddCosts(linears, config, ranks, spec);
    AddParameters(linears, config.lora, spec);
    for (const LinearSpec& linear : linears) words += " " + linear.suffix;
    begin = end;
  }
  spec->adapter_scale = config.lora.scale();
  spec->adapter_dropout = config.lora.dropout;
  if (words.empty()) {
    spec->shape += ", frozen";
  } else {
    spec->shape +=
        fmt::format(", lora {}{}{}", config.lora.rank, config.lora.dora ? " dora" : "", words);
  }
}

// The linear layers of `spec` that are targets.
std::vector<LinearSpec> TargetsOf(const LayerSpec& spec, const Patterns& patterns,
                                  const WeightNames& names,
                                  const std::vector<std::string>& without) {
  std::vector<LinearSpec> targets;
  if (spec.unused || IsAmong(spec, without)) return targets;
  for (const LinearSpec& linear : spec.linear_layers) {
    const std::string name = spec.name + "." + linear.suffix;
    if (patterns.all() || patterns.Match(name, names.InMemory(name))) targets.push_back(linear);
  }
  return targets;
}

// Modules with a weight whose names match.
std::set<std::string> ModulesThatMatch(const Patterns& pattern, const std::vector<LayerSpec>& specs,
                                       const WeightNames& names) {
  std::set<std::string> modules;
  for (const LayerSpec& spec : specs) {
    for (const TensorSpec& tensor : spec.parameters) {
      const std::string module = ModuleOf(tensor.name);
      if (pattern.Match(module, names.InMemory(module))) modules.insert(module);
    }
  }
  return modules;
}

// Modules with a weight that match, or that lie in a module that does, as in PEFT's
// modules_to_save.
std::set<std::string> ModulesWithin(const Patterns& pattern, const std::vector<LayerSpec>& specs,
                                    const WeightNames& names) {
  std::set<std::string> modules;
  for (const LayerSpec& spec : specs) {
    for (const TensorSpec& tensor : spec.parameters) {
      const std::string module = ModuleOf(tensor.name);
      for (size_t end = module.size(); end != module.npos && end > 0;
           end = module.rfind('.', end - 1)) {
        const std::string outer = module.substr(0, end);
        if (!pattern.Match(outer, names.InMemory(outer))) continue;
        modules.insert(module);
        break;
      }
    }
  }
  return modules;
}

// Refuses to train a part of a group in full: one product has all its weights' gradients or none.
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
          "{}.train: {} is trained in full and {} is not, but they are one product of their input; "
          "name both, or neither",
          key, with, without));
    }
  }
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
                             const Patterns& pattern, const std::vector<LayerSpec>& specs,
                             const WeightNames& names) {
  // As other trainers write them.
  if (text == "all") {
    throw ConfigError(fmt::format("{}.targets: '{}' matches no layer; write {} for all of them",
                                  key, text, kAllLinear));
  }
  if (text.find(',') != std::string::npos && text.find_first_of("\\()[]{}*+?") == text.npos) {
    throw ConfigError(fmt::format("{}.targets: '{}' is one name; write a list: [{}]", key, text,
                                  WithSpaces(text)));
  }
  const std::set<std::string> others = ModulesThatMatch(pattern, specs, names);
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
  std::string example;
  for (const LayerSpec& spec : specs) {
    if (!spec.linear_layers.empty()) example = spec.name + "." + spec.linear_layers[0].suffix;
  }
  throw ConfigError(
      fmt::format("{}.targets: '{}' matches no layer of this model; linear layers have names such "
                  "as {}",
                  key, text, example));
}

}  // namespace

std::string ExactPattern(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == '.' ? std::string("\\.") : std::string(1, c);
  return text;
}

void AddAdapters(const ModelConfig& config, int tensor_ranks, std::vector<LayerSpec>* specs) {
  if (!config.lora.on() && config.quantize.packing == Packing::kNone) return;
  const Patterns targets(config.lora.targets, "lora.targets");
  const Patterns train(config.lora.train, "lora.train");
  const WeightNames names = WeightNamesOf(config);
  for (LayerSpec& spec : *specs) {
    MakeBase(config, train, names, &spec);
    std::vector<LinearSpec> linears = TargetsOf(spec, targets, names, config.lora.without);
    std::erase_if(linears, [&](const LinearSpec& linear) {
      return IsTrainedInFull(train, names, spec.name + "." + linear.suffix);
    });
    if (linears.empty() && IsTrained(spec, {})) continue;
    AddTo(config, tensor_ranks, linears, &spec);
  }
}

void ResolveLora(const std::string& key, ModelConfig* config) {
  LoraConfig& lora = config->lora;
  if (!lora.on()) return;
  ModelConfig plain = *config;
  plain.lora = {};
  plain.quantize = {};
  const std::vector<LayerSpec> specs = LayerSpecs(plain);
  const WeightNames names = WeightNamesOf(*config);
  std::set<std::string> targets, trained;
  for (const std::string& text : lora.targets) {
    const Patterns pattern({text}, key + ".targets");
    size_t found = 0;
    for (const LayerSpec& spec : specs) {
      for (const LinearSpec& linear : TargetsOf(spec, pattern, names, lora.without)) {
        targets.insert(spec.name + "." + linear.suffix);
        ++found;
      }
    }
    if (found == 0) FailTarget(key, text, pattern, specs, names);
  }
  for (const std::string& text : lora.train) {
    const std::set<std::string> found =
        ModulesWithin(Patterns({text}, key + ".train"), specs, names);
    if (found.empty()) {
      throw ConfigError(
          fmt::format("{}.train: '{}' matches no module of this model; names are such as {}", key,
                      text, ModuleOf(specs.back().parameters.back().name)));
    }
    trained.insert(found.begin(), found.end());
  }
  CheckGroups(key, trained, specs);
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

std::string PeftName(const ModelConfig& config, const std::string& parameter) {
  // X.lora_A.weight is the parameter of a module X.lora_A of the linear layer X.
  std::string layer = ModuleOf(parameter), last = parameter.substr(layer.size());
  const size_t adapter = layer.rfind(".lora_");
  if (adapter != layer.npos) {
    last = layer.substr(adapter) + last;
    layer = layer.substr(0, adapter);
  }
  if (last.starts_with(".lora_magnitude_vector")) last = ".lora_magnitude_vector";
  return kPeftPrefix + WeightNamesOf(config).InMemory(layer) + last;
}

}  // namespace equipoise
