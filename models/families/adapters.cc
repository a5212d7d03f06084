#include "models/families/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/module_patterns.h"

// The cost of adapters: two thin products a linear layer, whose weights alone have gradients. What
// is kept for these is the input of each group of linears that share it (where that is not kept
// anyway, as attention's result is) and its product with A; of the frozen weights nothing.

namespace equipoise {
namespace {

const TensorSpec& WeightOf(const LayerSpec& spec, const LinearSpec& linear) {
  const std::string name = spec.name + "." + linear.suffix + ".weight";
  const auto found =
      std::find_if(spec.parameters.begin(), spec.parameters.end(),
                   [&name](const TensorSpec& tensor) { return tensor.name == name; });
  EQUIPOISE_CHECK(found != spec.parameters.end(), name);
  return *found;
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

// Makes all of a layer a frozen base but what is trained in full, and packs its linear layers.
void MakeBase(const ModelConfig& config, const ModulePatterns& train, const WeightNames& names,
              LayerSpec* spec) {
  const auto is_trained = [&](const TensorSpec& tensor) {
    return !spec->unused && train.Match(ModuleOf(tensor.name), names);
  };
  for (TensorSpec& tensor : spec->parameters) {
    if (!is_trained(tensor)) tensor.role = ParameterRole::kBase;
  }
  if (!spec->tied.name.empty() && !is_trained(spec->tied)) spec->tied.role = ParameterRole::kBase;
  // Trained all the same where the component is frozen, which keeps adapters out of it.
  spec->unfrozen = IsTrained(*spec, {});
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

}  // namespace

std::string ExactPattern(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == '.' ? std::string("\\.") : std::string(1, c);
  return text;
}

void AddAdapters(const ModelConfig& config, int tensor_ranks, std::vector<LayerSpec>* specs) {
  if (!config.lora.on() && config.quantize.packing == Packing::kNone) return;
  const ModulePatterns targets(config.lora.targets, "lora.targets");
  const ModulePatterns train(config.lora.train, "lora.train");
  const WeightNames names = WeightNamesOf(config);
  for (LayerSpec& spec : *specs) {
    MakeBase(config, train, names, &spec);
    std::vector<LinearSpec> linears = TargetsOf(spec, targets, names, config.lora.without);
    std::erase_if(linears, [&](const LinearSpec& linear) {
      return train.Match(spec.name + "." + linear.suffix, names);
    });
    if (linears.empty() && IsTrained(spec, {})) continue;
    AddTo(config, tensor_ranks, linears, &spec);
  }
}

std::string PeftLayer(const ModelConfig& config, const std::string& layer) {
  const WeightNames names = WeightNamesOf(config);
  // Modules of version 4 have the names of its files.
  if (config.naming == WeightNaming::kTransformers && layer.starts_with("vision_tower."))
    return "model." + names.InFolder(layer).name;
  return names.InMemory(layer);
}

std::string PeftName(const ModelConfig& config, const std::string& parameter) {
  const WeightNames names = WeightNamesOf(config);
  // X.lora_A.weight is the parameter of a module X.lora_A of the linear layer X.
  const size_t adapter = parameter.rfind(".lora_");
  if (adapter == parameter.npos) return kPeftPrefix + names.InMemory(parameter);
  std::string last = parameter.substr(adapter);
  if (last.starts_with(".lora_magnitude_vector")) last = ".lora_magnitude_vector";
  return kPeftPrefix + PeftLayer(config, parameter.substr(0, adapter)) + last;
}

}  // namespace equipoise
