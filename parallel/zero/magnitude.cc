#include "parallel/zero/magnitude.h"

#include <ATen/ops/aminmax.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace equipoise {

double Magnitude(const at::Tensor& values) {
  if (values.numel() == 0) return 0;
  const auto [least, most] = at::aminmax(values);
  const double largest = std::max(-least.item<double>(), most.item<double>());
  return std::isnan(least.item<double>()) ? std::numeric_limits<double>::infinity() : largest;
}

}  // namespace equipoise
