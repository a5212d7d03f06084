#include "parallel/zero/parameter_groups.h"

#include <map>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {

std::vector<ParameterGroup> DecayGroups(const std::vector<Parameter*>& parameters,
                                        const std::vector<double>& lr_factor, double weight_decay) {
  EQUIPOISE_CHECK(parameters.size() == lr_factor.size());
  std::map<std::pair<double, double>, ParameterGroup> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]->trainable) continue;
    const double decay = parameters[i]->shape.size() >= 2 ? weight_decay : 0.0;
    ParameterGroup& group = groups[{lr_factor[i], decay}];
    group.lr_factor = lr_factor[i];
    group.weight_decay = decay;
    group.indices.push_back(i);
  }
  std::vector<ParameterGroup> result;
  result.reserve(groups.size());
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

}  // namespace equipoise
