#include "models/weights/unused_weights.h"

#include <algorithm>
#include <set>

#include "models/families/families.h"
#include "models/spec/weight_names.h"
#include "models/weights/gptq_folder.h"
#include "models/weights/safetensors.h"

namespace equipoise {
namespace {

// Whether a tensor of this name in a file is of no use to any run.
bool IsOfNoUse(const std::string& name) {
  const auto begins = [&name](const char* part) { return name.starts_with(part); };
  const auto ends = [&name](const char* part) { return name.ends_with(part); };
  return begins("text_model.") || begins("text_projection.") || begins("visual_projection.") ||
         begins("logit_scale") || begins("logit_bias") || ends(".inv_freq") ||
         ends(".position_ids");
}

// Our names of the weights that the model has, or that a folder of it may have beside them.
std::set<std::string> KnownWeights(const ModelConfig& config, const WeightNames& names) {
  const std::vector<LayerSpec> layers = LayerSpecs(config);
  std::set<std::string> known;
  for (const LayerSpec& layer : layers) {
    for (const TensorSpec& tensor : layer.parameters) {
      const std::string name = names.Canonical(tensor.name);
      known.insert(name);
      if (tensor.packing == Packing::kGptq) known.insert(name.substr(0, name.rfind('.')) + ".bias");
    }
  }
  if (!layers.back().tied.name.empty()) known.insert(layers.back().name + ".weight");
  return known;
}

}  // namespace

std::vector<std::string> UnusedWeights(const ModelConfig& config, const WeightFolder& folder) {
  const WeightNames names = folder.names ? *folder.names : WeightNamesOf(config);
  const std::set<std::string> known = KnownWeights(config, names);
  const auto is_used = [&known](const WeightNames::Held& held) {
    return known.count(GptqWeightName(held.name)) > 0 ||
           held.name.starts_with("vision_tower.head.");
  };
  std::vector<std::string> unused;
  for (const std::string& name : SafetensorsFolder(folder.path).names()) {
    const std::vector<WeightNames::Held> held = names.Ours(folder.prefix + name);
    if (!IsOfNoUse(name) && std::none_of(held.begin(), held.end(), is_used)) unused.push_back(name);
  }
  return unused;
}

}  // namespace equipoise
