#include "parallel/zero/grad_norm.h"

#include <ATen/ops/randn.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "parallel/zero/sum_of_squares.h"

namespace equipoise {
namespace {

Parameter Named(const std::string& name, const std::vector<int64_t>& shape) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = shape;
  return parameter;
}

TEST_CASE("the gradient norm covers trainable parameters in any order", "[parallel][cpu]") {
  Parameter a = Named("a", {3, 4}), b = Named("b", {37}), frozen = Named("frozen", {5});
  frozen.trainable = false;
  FlatParameters flat({&b, &frozen, &a}, at::kFloat);
  flat.gradient().copy_(at::randn(flat.gradient().sizes()));
  double sum = 0;
  for (const Parameter* p : {&a, &b}) {
    for (int64_t i = 0; i < p->numel(); ++i) {
      const double g = p->gradient.const_data_ptr<float>()[i];
      sum += g * g;
    }
  }
  const double norm = GradientNorm({&b, &frozen, &a});
  CHECK(norm == Approx(std::sqrt(sum)).epsilon(1e-14));
  CHECK(GradientNorm({&a, &b}) == norm);  // the same bits
  CHECK(GradientNorm({&frozen}) == 0);
}

TEST_CASE("fp32 squares that overflow are no problem, non-finite gradients show",
          "[parallel][cpu]") {
  Parameter a = Named("a", {20});
  FlatParameters flat({&a}, at::kFloat);
  a.gradient.fill_(3e30);
  CHECK(GradientNorm({&a}) == Approx(3e30 * std::sqrt(20.0)));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const int64_t at : {0, 19}) {
      a.gradient.zero_();
      a.gradient.mutable_data_ptr<float>()[at] = bad;
      CHECK_FALSE(std::isfinite(GradientNorm({&a})));
    }
  }
}

TEST_CASE("the order of the additions is the same on all processors", "[parallel][cpu]") {
  // Sixteen running sums, then those, then what is left over.
  const at::Tensor values = at::randn({16 * 9 + 5});
  const float* v = values.const_data_ptr<float>();
  double lanes[16] = {}, sum = 0;
  for (int64_t i = 0; i < 16 * 9; ++i) lanes[i % 16] += static_cast<double>(v[i]) * v[i];
  for (const double lane : lanes) sum += lane;
  for (int64_t i = 16 * 9; i < values.numel(); ++i) sum += static_cast<double>(v[i]) * v[i];
  CHECK(SumOfSquares(v, values.numel()) == sum);
}

TEST_CASE("clipping scales only norms above the limit", "[parallel][cpu]") {
  CHECK(ClipFactor(0.5, 1.0) == 1.0);
  CHECK(ClipFactor(4.0, 1.0) == Approx(0.25).epsilon(1e-6));
  CHECK(ClipFactor(4.0, 1.0) < 0.25);  // torch adds 1e-6 to the norm
  CHECK(ClipFactor(4.0, 0.0) == 1.0);
  CHECK(ClipFactor(0.0, 1.0) == 1.0);
}

}  // namespace
}  // namespace equipoise
