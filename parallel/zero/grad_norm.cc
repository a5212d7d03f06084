#include "parallel/zero/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "configs/error.h"

namespace equipoise {
namespace {

// In lanes, for the vector unit; the order of the additions is fixed.
double SumOfSquares(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const double value = values[i + k];
      lanes[k] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

}  // namespace

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
