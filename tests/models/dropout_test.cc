#include "models/ops/dropout.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "tests/models/model_support.h"

namespace equipoise {
namespace {

using testing::MakeModel;
using testing::RandomBatch;
using testing::TestModel;

TEST_CASE("stochastic depth leaves whole samples out and scales the others", "[ops][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const double p = 0.3;
  at::Tensor x = testing::Normal({4000, 2, 3}, 1).to(dtype).requires_grad_();
  const at::Tensor y = ops::DropPath(x, p, {7, "block.attention"});
  const at::Tensor kept = y.ne(0).flatten(1).any(1);
  const at::Tensor factor = kept.to(dtype).mul(1 / (1 - p)).view({4000, 1, 1});
  CHECK(y.equal(x.detach().mul(factor)));
  CHECK(kept.to(at::kFloat).mean().item<double>() == Approx(1 - p).margin(0.03));
  y.sum().backward();
  CHECK(x.grad().equal(factor.expand_as(x)));

  const auto mask = [&](const ops::DropoutKey& key) {
    return ops::DropPath(x.detach(), p, key).ne(0).flatten(1).any(1);
  };
  CHECK(mask({7, "block.attention"}).equal(kept));
  // Other places and other steps draw for themselves: two masks agree in p² + (1 - p)².
  for (const ops::DropoutKey& key :
       {ops::DropoutKey{8, "block.attention"}, ops::DropoutKey{7, "block.mlp"}}) {
    CHECK(mask(key).eq(kept).to(at::kFloat).mean().item<double>() ==
          Approx(p * p + (1 - p) * (1 - p)).margin(0.03));
  }
}

double LossOf(const ModelConfig& config, uint64_t noise, const std::vector<std::string>& freeze) {
  TestModel model = MakeModel(config, at::kFloat, freeze);
  MicroBatch batch = RandomBatch(config, {30, 12}, 2, 5);
  batch.noise = noise;
  return model.stage->Forward(0, batch, {}, 1.0).item<double>();
}

TEST_CASE("an InternViT that is trained skips halves of its blocks, another does not",
          "[models][cpu]") {
  const ModelConfig whole = testing::TinyInternVl(/*large_form=*/GENERATE(false, true));
  ModelConfig config = whole;
  config.vision.drop_path_rate = 0.6;
  const double loss = LossOf(whole, 3, {});
  CHECK(LossOf(config, 0, {}) == loss);  // as in evaluation
  CHECK(LossOf(config, 3, {"vision"}) == loss);
  int differ = 0;
  for (uint64_t noise = 1; noise <= 8; ++noise) {
    const double found = LossOf(config, noise, {});
    CHECK(found == LossOf(config, noise, {}));
    differ += found != loss ? 1 : 0;
  }
  // Two tiles and two halves of one block are all kept with a probability of 0.4⁴.
  CHECK(differ >= 6);
}

}  // namespace
}  // namespace equipoise
