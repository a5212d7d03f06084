#include "parallel/zero/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "configs/error.h"
#include "parallel/zero/sum_of_squares.h"

namespace equipoise {

double GradientNorm(const std::vector<Parameter*>& parameters) {
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter* parameter : parameters) {
    if (!parameter->trainable) continue;
    EQUIPOISE_CHECK(by_name.emplace(parameter->name, parameter).second, parameter->name);
  }
  double sum = 0;
  for (const auto& [name, parameter] : by_name) {
    const at::Tensor& gradient = parameter->gradient;
    EQUIPOISE_CHECK(gradient.is_contiguous(), name);
    sum += SumOfSquares(gradient.const_data_ptr<float>(), gradient.numel());
  }
  return std::sqrt(sum);
}

double ClipFactor(double norm, double max_norm) {
  if (max_norm == 0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace equipoise
