#include "models/layer.h"

#include <algorithm>
#include <utility>

namespace equipoise {

bool Layer::trainable() const {
  const auto trained = [](const Parameter* parameter) { return parameter->trainable; };
  return std::any_of(parameter_list_.begin(), parameter_list_.end(), trained) ||
         std::any_of(borrowed_.begin(), borrowed_.end(), trained);
}

Parameter& Layer::AddParameter(const std::string& name, std::vector<int64_t> shape) {
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name[0] == '/' ? name.substr(1) : name_ + "." + name;
  parameter->shape = std::move(shape);
  parameters_.push_back(std::move(parameter));
  parameter_list_.push_back(parameters_.back().get());
  return *parameters_.back();
}

std::vector<ops::LinearWeights> Layer::AddLinears(const std::vector<LinearShape>& linears,
                                                  int64_t in, bool bias) {
  std::vector<ops::LinearWeights> weights;
  for (const LinearShape& linear : linears) {
    weights.push_back({&AddParameter(linear.name + ".weight", {linear.out, in}), nullptr});
  }
  for (size_t i = 0; bias && i < linears.size(); ++i) {
    weights[i].bias = &AddParameter(linears[i].name + ".bias", {linears[i].out});
  }
  return weights;
}

}  // namespace equipoise
