#include "parallel/zero/adamw.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
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

  explicit Model(at::ScalarType compute = at::kFloat) : flat(Prepare(), compute) {
    for (Parameter* p : flat.parameters()) p->stored().copy_(at::randn(p->shape));
    flat.UpdateCompute();
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
  adamw.TakeMasters();
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
  adamw.TakeMasters();
  for (int t = 0; t < 2; ++t) {
    model.flat.gradient().copy_(at::randn(model.flat.gradient().sizes()));
    adamw.Step(1e-2);
  }
  AdamW restored(other.flat, DecayGroups(other.flat.parameters(), {1, 1, 1}, 0.1), {});
  restored.TakeMasters();
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

// Ten steps on gradients that are the same for each optimizer.
void TenSteps(Model& model, AdamW& adamw) {
  for (int t = 1; t <= 10; ++t) {
    model.flat.ZeroGradient();
    for (Parameter* p : {&model.weight, &model.bias}) {
      const at::Tensor steps = at::arange(p->numel(), at::kFloat).view(p->shape);
      p->gradient.copy_(steps.mul(0.37 * t).sin());
    }
    adamw.Step(1e-2);
  }
}

TEST_CASE("masters that are kept beside 16-bit weights have the bits of fp32 ones",
          "[parallel][cpu]") {
  const auto compute = GENERATE(at::kBFloat16, at::kHalf);
  Model whole, split(compute);
  for (size_t i = 0; i < 3; ++i) {
    split.flat.parameters()[i]->stored().copy_(whole.flat.parameters()[i]->stored());
  }
  split.flat.UpdateCompute();
  const auto groups = DecayGroups(whole.flat.parameters(), {1, 1, 1}, 0.1);
  AdamW of_whole(whole.flat, groups, {}), of_split(split.flat, groups, {});
  of_whole.TakeMasters();
  of_split.TakeMasters();
  CHECK(!split.weight.master.defined());
  TenSteps(whole, of_whole);
  TenSteps(split, of_split);
  for (const size_t i : {0, 2}) {
    const Parameter &one = *whole.flat.parameters()[i], &other = *split.flat.parameters()[i];
    CHECK(of_split.Master(i).sizes() == one.shape);
    CHECK(of_split.Master(i).Get().equal(one.master));
    CHECK(of_split.exp_avg(i).equal(of_whole.exp_avg(i)));
    const double unit = compute == at::kHalf ? 1 / 2048.0 : 1 / 256.0;
    CHECK(other.value.sub(one.master).abs().le(one.master.abs().mul(unit)).all().item<bool>());
    CHECK(!other.value.to(at::kFloat).equal(one.master));
  }
}

TEST_CASE("clipping in the step has the bits of clipping before it", "[parallel][cpu]") {
  const auto compute = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  AdamWOptions options;
  options.moments = GENERATE(at::kFloat, at::kBFloat16, at::kByte);
  const double clip = GENERATE(1.0, 0.7, 1e-3);
  Model before(compute), within(compute);
  for (size_t i = 0; i < 3; ++i) {
    within.flat.parameters()[i]->stored().copy_(before.flat.parameters()[i]->stored());
  }
  within.flat.UpdateCompute();
  const auto groups = DecayGroups(before.flat.parameters(), {1, 1, 1}, 0.1);
  AdamW first(before.flat, groups, options), second(within.flat, groups, options);
  for (AdamW* adamw : {&first, &second}) adamw->TakeMasters();
  for (int t = 1; t <= 3; ++t) {
    const at::Tensor gradient = at::randn(before.flat.gradient().sizes());
    for (Model* model : {&before, &within}) model->flat.gradient().copy_(gradient);
    before.flat.gradient().mul_(clip);
    first.Step(1e-2);
    CHECK(second.StepIsFinite(1e-2, clip));
    second.Step(1e-2, clip);
    CHECK(within.flat.gradient().equal(gradient));
    for (const size_t i : {0, 2}) {
      CHECK(second.Master(i).Get().equal(first.Master(i).Get()));
      CHECK(second.exp_avg(i).equal(first.exp_avg(i)));
      CHECK(second.exp_avg_sq(i).equal(first.exp_avg_sq(i)));
    }
  }
}

TEST_CASE("a step is tried with its clipping", "[parallel][cpu]") {
  Model model;
  AdamW adamw(model.flat, DecayGroups(model.flat.parameters(), {1, 1, 1}, 0.1), {});
  adamw.TakeMasters();
  model.flat.gradient().fill_(1e25);  // whose square is beyond fp32
  CHECK_FALSE(adamw.StepIsFinite(1e-2));
  CHECK(adamw.StepIsFinite(1e-2, 1e-20));
}

constexpr uint64_t kSeed = 11;

AdamWOptions WithoutMasters(at::ScalarType moments = at::kFloat) {
  AdamWOptions options;
  options.moments = moments;
  options.rounding_seed = kSeed;
  return options;
}

TEST_CASE("without masters a step is that of fp32, rounded to a neighbour", "[parallel][cpu]") {
  const auto moments = GENERATE(at::kFloat, at::kBFloat16, at::kByte);
  Model exact, rounded(at::kBFloat16);
  for (size_t i = 0; i < 3; ++i) {
    at::Tensor& weight = exact.flat.parameters()[i]->stored();
    weight.copy_(weight.to(at::kBFloat16));
    rounded.flat.parameters()[i]->stored().copy_(weight);
  }
  rounded.flat.UpdateCompute();
  const auto groups = DecayGroups(exact.flat.parameters(), {1, 1, 1}, 0.1);
  AdamWOptions options;
  options.moments = moments;
  AdamW fp32(exact.flat, groups, options), bf16(rounded.flat, groups, WithoutMasters(moments));
  for (AdamW* adamw : {&fp32, &bf16}) adamw->TakeMasters();
  int up = 0, down = 0;
  for (int t = 1; t <= 20; ++t) {
    for (const size_t i : {0, 2}) {  // what the step of both starts from
      const Parameter &to = *exact.flat.parameters()[i], &from = *rounded.flat.parameters()[i];
      at::Tensor(to.value).copy_(from.value);
    }
    const at::Tensor gradient = at::randn(exact.flat.gradient().sizes());
    for (Model* model : {&exact, &rounded}) model->flat.gradient().copy_(gradient);
    CHECK(bf16.StepIsFinite(1e-2));
    fp32.Step(1e-2);
    bf16.Step(1e-2);
    for (const size_t i : {0, 2}) {
      CHECK(bf16.exp_avg(i).equal(fp32.exp_avg(i)));
      CHECK(bf16.Master(i).dtype() == at::kBFloat16);
      const at::Tensor found = bf16.Master(i).Get(), p = exact.flat.parameters()[i]->value;
      CHECK(found.equal(rounded.flat.parameters()[i]->value));
      const at::Tensor away = found.to(at::kFloat).sub(p);
      CHECK(away.abs().le(p.abs().div(128)).all().item<bool>());
      up += away.gt(0).sum().item<int>(), down += away.lt(0).sum().item<int>();
    }
  }
  // Of 840: five standard deviations of as many coins.
  CHECK(std::abs(up - down) < 5 * std::sqrt(840.0));
  CHECK(up + down > 800);
}

// One parameter of `shape` after four steps, of which the gradients are parts of whole ones.
at::Tensor Trained(const at::Tensor& whole, const TensorPart& part, const std::string& name,
                   uint64_t seed = kSeed) {
  const auto mine = [&](const at::Tensor& all) {
    return part.split() ? all.narrow(part.dim, part.begin, all.size(part.dim) / 2).contiguous()
                        : all;
  };
  Parameter other = Named("before", {33}), parameter = Named(name, mine(whole).sizes().vec());
  parameter.part = part;
  std::vector<Parameter*> list = {&parameter};
  if (part.begin > 0) list = {&other, &parameter};  // where the buffer has it is of no matter
  FlatParameters flat(list, at::kBFloat16);
  parameter.stored().copy_(mine(whole));
  flat.UpdateCompute();
  AdamWOptions options = WithoutMasters();
  options.rounding_seed = seed;
  AdamW adamw(flat, DecayGroups(list, std::vector<double>(list.size(), 1), 0.1), options);
  adamw.TakeMasters();
  for (int t = 1; t <= 4; ++t) {
    flat.ZeroGradient();
    parameter.gradient.copy_(
        mine(at::arange(whole.numel(), at::kFloat).mul(t).cos().view_as(whole)));
    adamw.Step(1e-3);
  }
  return parameter.value.clone();
}

TEST_CASE("tensor ranks round their parts as one rank the whole", "[parallel][cpu]") {
  const int dim = GENERATE(0, 1);
  const at::Tensor whole = at::randn({24, 1200});  // more than a chunk of AdamW's
  const at::Tensor alone = Trained(whole, {}, "w");
  for (const int64_t rank : {0, 1}) {
    const int64_t size = whole.size(dim) / 2;
    const at::Tensor part = Trained(whole, {dim, rank * size, whole.size(dim), true}, "w");
    CHECK(part.equal(alone.narrow(dim, rank * size, size)));
  }
  CHECK_FALSE(Trained(whole, {}, "v").equal(alone));
  CHECK_FALSE(Trained(whole, {}, "w", kSeed + 1).equal(alone));
  CHECK(Trained(whole, {}, "w").equal(alone));
}

TEST_CASE("weights without masters learn by steps below half of a bf16 step", "[parallel][cpu]") {
  constexpr int64_t kNumel = 4096;
  constexpr double kLr = 1e-4;  // bf16 numbers below 1 are 1/256 apart, those above 1/128
  Parameter weight = Named("w", {kNumel});
  FlatParameters flat({&weight}, at::kBFloat16);
  weight.stored().fill_(1.5F);
  flat.UpdateCompute();
  AdamW adamw(flat, DecayGroups({&weight}, {1}, 0), WithoutMasters());
  adamw.TakeMasters();
  at::Tensor nearest = at::full({kNumel}, 1.5, at::kBFloat16);
  for (int t = 0; t < 200; ++t) {
    flat.gradient().fill_(1);  // of which AdamW makes steps of the learning rate
    adamw.Step(kLr);
    nearest = nearest.to(at::kFloat).sub(kLr).to(at::kBFloat16);
  }
  CHECK(nearest.eq(1.5).all().item<bool>());
  // Each step of an element is 1/128 with a probability of 0.0128: the mean's deviation is that of
  // 200 * 4096 such draws, 1/128 * sqrt(200 * 0.0128) / 64 = 2.0e-4, of which five are allowed.
  const double moved = 1.5 - weight.value.to(at::kDouble).mean().item<double>();
  CHECK(std::abs(moved - 200 * kLr) < 1e-3);
}

TEST_CASE("an optimizer without masters goes on with the same bits", "[parallel][cpu]") {
  const auto moments = GENERATE(at::kFloat, at::kBFloat16);
  Model first(at::kBFloat16), second(at::kBFloat16);
  const auto groups = DecayGroups(first.flat.parameters(), {1, 1, 1}, 0.1);
  AdamW one(first.flat, groups, WithoutMasters(moments));
  one.TakeMasters();
  TenSteps(first, one);
  for (const size_t i : {0, 2}) second.flat.parameters()[i]->stored().copy_(one.Master(i).Get());
  second.flat.UpdateCompute();
  AdamW other(second.flat, groups, WithoutMasters(moments));
  other.TakeMasters();
  for (const size_t i : {0, 2}) {
    other.exp_avg(i).copy_(one.exp_avg(i));
    other.exp_avg_sq(i).copy_(one.exp_avg_sq(i));
  }
  other.set_steps(one.steps());
  TenSteps(first, one);
  TenSteps(second, other);
  for (const size_t i : {0, 2}) CHECK(other.Master(i).Get().equal(one.Master(i).Get()));
  // The step's number counts.
  other.set_steps(one.steps() + 1);
  TenSteps(first, one);
  TenSteps(second, other);
  CHECK_FALSE(other.Master(0).Get().equal(one.Master(0).Get()));
}

TEST_CASE("only bf16 weights may have no masters", "[parallel][cpu]") {
  const auto compute = GENERATE(at::kFloat, at::kHalf);
  Model model(compute);
  CHECK_THROWS_AS(
      AdamW(model.flat, DecayGroups(model.flat.parameters(), {1, 1, 1}, 0.1), WithoutMasters()),
      std::logic_error);
}

TEST_CASE("weights beyond the range of fp16 are refused by name", "[parallel][cpu]") {
  const bool is_frozen = GENERATE(false, true);
  for (const float value : {65519.0F, 65520.0F}) {  // to 65504, and to infinity
    Parameter weight = Named("layer.weight", {2, 2}), frozen = Named("frozen", {2});
    frozen.trainable = false;
    FlatParameters flat({&weight, &frozen}, at::kHalf);
    Parameter& large = is_frozen ? frozen : weight;
    const auto set = [&](const std::vector<Parameter*>&) {
      large.stored().copy_(at::full(large.shape, -value));
    };
    if (value < 65520) {
      CHECK_NOTHROW(flat.SetWeights(set));
    } else {
      CHECK_THROWS_WITH(flat.SetWeights(set), Catch::Contains(large.name + ": has values beyond") &&
                                                  Catch::Contains("train.precision"));
    }
  }
}

TEST_CASE("moments in bf16 are fp32 ones rounded after each step", "[parallel][cpu]") {
  const auto compute = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  Model exact(compute), rounded(compute);
  for (size_t i = 0; i < 3; ++i) {
    rounded.flat.parameters()[i]->stored().copy_(exact.flat.parameters()[i]->stored());
  }
  rounded.flat.UpdateCompute();
  const auto groups = DecayGroups(exact.flat.parameters(), {1, 1, 1}, 0.1);
  AdamWOptions options;
  AdamW fp32(exact.flat, groups, options);
  options.moments = at::kBFloat16;
  AdamW bf16(rounded.flat, groups, options);
  for (AdamW* adamw : {&fp32, &bf16}) adamw->TakeMasters();
  for (int t = 1; t <= 3; ++t) {
    for (Model* model : {&exact, &rounded}) {
      model->flat.ZeroGradient();
      for (Parameter* p : {&model->weight, &model->bias}) p->gradient.fill_(0.1 * t);
    }
    fp32.Step(1e-2);
    bf16.Step(1e-2);
    for (const size_t i : {0, 2}) {
      CHECK(bf16.exp_avg(i).scalar_type() == at::kBFloat16);
      // What the next step of both starts from.
      fp32.exp_avg(i).copy_(fp32.exp_avg(i).to(at::kBFloat16));
      fp32.exp_avg_sq(i).copy_(fp32.exp_avg_sq(i).to(at::kBFloat16));
      CHECK(bf16.exp_avg(i).to(at::kFloat).equal(fp32.exp_avg(i)));
      CHECK(bf16.exp_avg_sq(i).to(at::kFloat).equal(fp32.exp_avg_sq(i)));
      CHECK(bf16.Master(i).Get().equal(fp32.Master(i).Get()));
    }
  }
}

TEST_CASE("a flat buffer of several regions is updated as each part alone", "[parallel][cpu]") {
  // Larger than a region; the parts are of other sizes, so that regions cut them elsewhere.
  const int64_t large = (1 << 16) + 1000, small = 777;
  const auto compute = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto trained = [&](std::vector<Parameter*> parameters) {
    FlatParameters flat(parameters, compute);
    for (Parameter* p : parameters) {
      p->stored().copy_(at::arange(p->numel(), at::kFloat).add(p->numel()).mul(0.11).sin());
    }
    flat.UpdateCompute();
    AdamW adamw(flat, DecayGroups(parameters, std::vector<double>(parameters.size(), 1), 0.1), {});
    adamw.TakeMasters();
    for (int t = 0; t < 2; ++t) {
      flat.ZeroGradient();
      for (Parameter* p : parameters) {
        p->gradient.copy_(at::arange(p->numel(), at::kFloat).mul(0.3).cos());
      }
      adamw.Step(1e-2);
    }
    std::vector<at::Tensor> masters;
    for (size_t i = 0; i < parameters.size(); ++i) masters.push_back(adamw.Master(i).Get().clone());
    return masters;
  };
  Parameter a = Named("a", {small}), b = Named("b", {large}), c = Named("c", {small + 1});
  const std::vector<at::Tensor> together = trained({&a, &b, &c});
  CHECK(together[0].equal(trained({&a})[0]));
  CHECK(together[1].equal(trained({&b})[0]));
  CHECK(together[2].equal(trained({&c})[0]));
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
