#include "models/families/unfreeze.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/families/families.h"
#include "models/families/module_patterns.h"

namespace equipoise {

void MarkUnfrozen(const ModelConfig& config, std::vector<LayerSpec>* specs) {
  if (config.unfreeze.empty()) return;
  const auto is_meant = [&config](const TensorSpec& tensor) {
    return config.unfreeze.count(ModuleOf(tensor.name)) > 0;
  };
  for (LayerSpec& spec : *specs) {
    const bool tied = !spec.tied.name.empty() && is_meant(spec.tied);
    spec.unfrozen = !spec.unused &&
                    (tied || std::any_of(spec.parameters.begin(), spec.parameters.end(), is_meant));
    if (!spec.unfrozen) continue;
    for (TensorSpec& tensor : spec.parameters) {
      if (!is_meant(tensor)) tensor.role = ParameterRole::kFrozen;
    }
    if (!tied) spec.tied.role = ParameterRole::kFrozen;
  }
}

std::string DescribeUnfrozen(const ModelConfig& config) {
  if (config.unfreeze.empty()) return "";
  struct Sum {
    int layers = 0, unfrozen = 0;
    int64_t parameters = 0, trained = 0;
  };
  std::vector<std::pair<std::string, Sum>> sums;  // in the order of the layers
  bool tied = false;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    const std::string name = ComponentName(spec.component);
    if (sums.empty() || sums.back().first != name) sums.emplace_back(name, Sum{});
    Sum& sum = sums.back().second;
    ++sum.layers;
    sum.parameters += spec.parameter_count();
    if (!spec.unfrozen) continue;
    ++sum.unfrozen;
    sum.trained += spec.trained_count();
    tied = tied || (!spec.tied.name.empty() && MayTrain(spec.tied.role));
  }
  std::string text;
  for (const auto& [name, sum] : sums) {
    if (sum.unfrozen == 0) continue;
    text += fmt::format("{}{:.2f} of {:.2f} M parameters of {}, in {} of its {} layers",
                        text.empty() ? "" : "; ", static_cast<double>(sum.trained) / 1e6,
                        static_cast<double>(sum.parameters) / 1e6, name, sum.unfrozen, sum.layers);
  }
  return fmt::format("model.unfreeze trains {}{}", text,
                     tied ? " (the embedding is the head too)" : "");
}

}  // namespace equipoise
