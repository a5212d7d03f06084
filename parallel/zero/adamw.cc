#include "parallel/zero/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <utility>

#include "configs/error.h"

namespace equipoise {

AdamW::AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
             const AdamWOptions& options)
    : parameters_(parameters),
      groups_(std::move(groups)),
      options_(options),
      exp_avg_(at::zeros_like(parameters.gradient())),
      exp_avg_sq_(at::zeros_like(parameters.gradient())) {
  std::vector<int> seen(parameters.parameters().size());
  for (const ParameterGroup& group : groups_) {
    for (const size_t index : group.indices) ++seen.at(index);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    const Parameter& parameter = *parameters.parameters()[i];
    EQUIPOISE_CHECK(seen[i] == (parameter.trainable ? 1 : 0), parameter.name, " is in ", seen[i],
                    " groups");
  }
}

at::Tensor AdamW::View(const at::Tensor& buffer, size_t index) const {
  const Parameter& parameter = *parameters_.parameters()[index];
  const int64_t offset = parameters_.gradient_offset(index);
  EQUIPOISE_CHECK(offset >= 0, parameter.name, " is frozen");
  return buffer.narrow(0, offset, parameter.numel()).view(parameter.shape);
}

void AdamW::Step(double lr) {
  ++steps_;
  const at::Tensor step = at::full({}, static_cast<double>(steps_), at::kFloat);
  for (const ParameterGroup& group : groups_) {
    std::vector<at::Tensor> masters, gradients, averages, squares;
    for (const size_t index : group.indices) {
      const Parameter& parameter = *parameters_.parameters()[index];
      masters.push_back(parameter.master);
      gradients.push_back(parameter.gradient);
      averages.push_back(exp_avg(index));
      squares.push_back(exp_avg_sq(index));
    }
    if (masters.empty()) continue;
    const std::vector<at::Tensor> step_of_each(masters.size(), step);
    at::_fused_adamw_(masters, gradients, averages, squares, /*max_exp_avg_sqs=*/{}, step_of_each,
                      lr * group.lr_factor, options_.beta1, options_.beta2, group.weight_decay,
                      options_.eps, /*amsgrad=*/false, /*maximize=*/false);
  }
}

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
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

}  // namespace equipoise
