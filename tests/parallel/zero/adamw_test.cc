#include "parallel/zero/adamw.h"

#include <ATen/ops/randn.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <stdexcept>

namespace equipoise {
namespace {

Parameter Named(const std::string& name, const std::vector<int64_t>& shape) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = shape;
  return parameter;
}

// A weight, a bias and a frozen weight.
struct Model {
  Parameter weight = Named("weight", {5, 7});
  Parameter frozen = Named("frozen", {3, 3});
  Parameter bias = Named("bias", {7});
  FlatParameters flat;

  Model() : flat(Prepare(), at::kFloat) {
    for (Parameter* p : flat.parameters()) p->stored().copy_(at::randn(p->shape));
  }
  std::vector<Parameter*> Prepare() {
    frozen.trainable = false;
    return {&weight, &frozen, &bias};
  }
};

// One element's AdamW in fp64, straight from the paper.
struct Element {
  double p, m = 0, v = 0;
  void Step(double g, double lr, double decay, int t) {
    const double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    p -= lr * decay * p;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = v / (1 - std::pow(beta2, t));
    p -= lr * m_hat / (std::sqrt(v_hat) + eps);
  }
};

TEST_CASE("AdamW follows the formula, each group with its own settings", "[parallel][cpu]") {
  Model model;
  AdamWOptions options;
  options.beta2 = 0.95;
  AdamW adamw(model.flat, {{{0}, 1.0, 0.05}, {{2}, 0.5, 0.0}}, options);
  const at::Tensor frozen = model.frozen.value.clone();
  std::vector<Element> weight, bias;
  for (int i = 0; i < 35; ++i) weight.push_back({model.weight.master.const_data_ptr<float>()[i]});
  for (int i = 0; i < 7; ++i) bias.push_back({model.bias.master.const_data_ptr<float>()[i]});

  for (int t = 1; t <= 5; ++t) {
    model.weight.gradient.copy_(at::randn({5, 7}));
    model.bias.gradient.copy_(at::randn({7}));
    const double lr = 0.01 * t;
    for (int i = 0; i < 35; ++i) {
      weight[i].Step(model.weight.gradient.const_data_ptr<float>()[i], lr, 0.05, t);
    }
    for (int i = 0; i < 7; ++i) {
      bias[i].Step(model.bias.gradient.const_data_ptr<float>()[i], lr * 0.5, 0, t);
    }
    adamw.Step(lr);
    CHECK(adamw.steps() == t);
  }
  for (int i = 0; i < 35; ++i) {
    CHECK(model.weight.master.const_data_ptr<float>()[i] ==
          Approx(weight[i].p).epsilon(2e-6).margin(1e-7));
    CHECK(adamw.exp_avg(0).const_data_ptr<float>()[i] ==
          Approx(weight[i].m).epsilon(2e-6).margin(1e-7));
    CHECK(adamw.exp_avg_sq(0).const_data_ptr<float>()[i] == Approx(weight[i].v).epsilon(2e-6));
  }
  for (int i = 0; i < 7; ++i) {
    CHECK(model.bias.master.const_data_ptr<float>()[i] ==
          Approx(bias[i].p).epsilon(2e-6).margin(1e-7));
  }
  CHECK(model.frozen.value.equal(frozen));
}

TEST_CASE("AdamW restored from its moments and steps goes on with the same bits",
          "[parallel][cpu]") {
  Model model, other;
  AdamW adamw(model.flat, DecayGroups(model.flat.parameters(), {1, 1, 1}, 0.1), {});
  for (int t = 0; t < 2; ++t) {
    model.flat.gradient().copy_(at::randn(model.flat.gradient().sizes()));
    adamw.Step(1e-2);
  }
  AdamW restored(other.flat, DecayGroups(other.flat.parameters(), {1, 1, 1}, 0.1), {});
  other.flat.master().copy_(model.flat.master());
  for (const size_t index : {0, 2}) {
    restored.exp_avg(index).copy_(adamw.exp_avg(index));
    restored.exp_avg_sq(index).copy_(adamw.exp_avg_sq(index));
  }
  restored.set_steps(adamw.steps());
  other.flat.gradient().copy_(model.flat.gradient());
  adamw.Step(1e-2);
  restored.Step(1e-2);
  CHECK(other.weight.master.equal(model.weight.master));
  CHECK(other.bias.master.equal(model.bias.master));
}

TEST_CASE("matrices decay, vectors do not, modules keep their factor", "[parallel][cpu]") {
  Model model;
  const auto groups = DecayGroups(model.flat.parameters(), {0.1, 1.0, 1.0}, 0.05);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].indices == std::vector<size_t>{0});
  CHECK(groups[0].lr_factor == 0.1);
  CHECK(groups[0].weight_decay == 0.05);
  CHECK(groups[1].indices == std::vector<size_t>{2});
  CHECK(groups[1].weight_decay == 0.0);
}

TEST_CASE("a parameter in no group, in two, or frozen in one is a bug", "[parallel][cpu]") {
  Model model;
  CHECK_THROWS_AS(AdamW(model.flat, {{{0}, 1.0, 0.0}}, {}), std::logic_error);
  CHECK_THROWS_AS(AdamW(model.flat, {{{0, 2}, 1.0, 0.0}, {{2}, 1.0, 0.0}}, {}), std::logic_error);
  CHECK_THROWS_AS(AdamW(model.flat, {{{0, 1, 2}, 1.0, 0.0}}, {}), std::logic_error);
}

}  // namespace
}  // namespace equipoise
