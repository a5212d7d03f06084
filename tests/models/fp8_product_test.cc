#include "models/ops/fp8_product.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "models/ops/linear.h"
#include "tests/models/model_support.h"

namespace equipoise::ops {
namespace {

using testing::Normal;
using testing::RelativeError;

at::Tensor Bf16(const std::vector<int64_t>& shape, int seed) {
  return Normal(shape, seed).to(at::kBFloat16);
}

at::Tensor Values(const Fp8Rows& rows) { return rows.codes.to(at::kDouble) * rows.scales; }

TEST_CASE("rows in fp8 are within half a step of what they stand for", "[fp8]") {
  const at::Tensor x = Bf16({5, 64}, 1) * at::tensor({1e-6, 1.0, 1e6, 0.0, 3.0}).unsqueeze(1);
  const at::Tensor rows = x.to(at::kBFloat16);
  const Fp8Rows rounded = RoundRowsToFp8(rows);
  const at::Tensor largest = std::get<0>(rows.to(at::kDouble).abs().max(1, true));
  // Three bits of mantissa, or a step of 2^-9 beside 448.
  const at::Tensor bound =
      at::maximum(rows.to(at::kDouble).abs() / 16, largest * (1.0 / 1024 / 448)) * 1.001;
  CHECK((Values(rounded) - rows.to(at::kDouble)).abs().le(bound).all().item<bool>());
  CHECK(std::get<0>(rounded.codes.to(at::kFloat).abs().max(1))
            .equal(at::tensor({448.0F, 448.0F, 448.0F, 0.0F, 448.0F})));
}

TEST_CASE("rows of numbers near the least of bf16 become zeros in fp8", "[fp8]") {
  const at::Tensor x = at::full({3, 16}, 1e-37, at::kBFloat16), weight = Bf16({16, 16}, 2);
  x[1].narrow(0, 0, 8).zero_();
  x[2].fill_(1e-39);  // below the normal numbers
  const Fp8Rows rounded = RoundRowsToFp8(x);
  CHECK(rounded.codes.to(at::kFloat).eq(0).all().item<bool>());
  CHECK(Fp8Product(x, weight, {}).eq(0).all().item<bool>());
}

TEST_CASE("a product in fp8 is that of its rounded factors, rounded once", "[fp8]") {
  const at::Tensor x = Bf16({24, 64}, 1), weight = Bf16({48, 64}, 2), bias = Bf16({48}, 3);
  const at::Tensor exact = Values(RoundRowsToFp8(x)).mm(Values(RoundRowsToFp8(weight)).t());
  CHECK(RelativeError(Fp8Product(x, weight, {}), exact) < 3e-3);
  CHECK(RelativeError(Fp8Product(x, weight, bias), exact + bias) < 3e-3);
  CHECK(RelativeError(Fp8Product(x, weight, {}), x.to(at::kDouble).mm(weight.to(at::kDouble).t())) <
        5e-2);
  // Of a transposed weight, as backward has it, in the layout that the scaled product asks for.
  CHECK(RoundRowsToFp8(weight.t()).codes.is_contiguous());
  // Whatever the other rows are.
  CHECK(Fp8Product(x.narrow(0, 8, 4), weight, bias)
            .equal(Fp8Product(x, weight, bias).narrow(0, 8, 4)));
}

TEST_CASE("infinite and undefined numbers stay visible in fp8", "[fp8]") {
  const at::Tensor x = Bf16({3, 16}, 1), weight = Bf16({16, 16}, 2);
  x[0][3] = NAN;
  x[1][3] = INFINITY;
  const at::Tensor y = Fp8Product(x, weight, {});
  CHECK(y[0].isnan().any().item<bool>());
  CHECK_FALSE(y[1].isfinite().all().item<bool>());
  CHECK(y[2].isfinite().all().item<bool>());
}

TEST_CASE("linear layers in fp8: forward and the input's gradient, not the weights'", "[fp8]") {
  const at::Tensor x = Bf16({20, 32}, 1), g = Bf16({20, 48}, 2);
  std::vector<at::Tensor> results;
  for (const bool fp8 : {false, true}) {
    Parameter weight;
    weight.name = "w";
    weight.shape = {48, 32};
    weight.fp8 = fp8;
    FlatParameters flat({&weight}, at::kBFloat16);
    weight.master.copy_(Normal({48, 32}, 3));
    flat.UpdateCompute();
    const at::Tensor input = x.detach().clone().requires_grad_();
    const at::Tensor y = Linear(input, weight);
    y.backward(g);
    results.insert(results.end(), {y.detach(), input.grad(), weight.gradient.clone()});
    if (!fp8) continue;
    CHECK(y.detach().equal(Fp8Product(x, weight.value, {})));
    CHECK(input.grad().equal(Fp8Product(g, weight.value.t(), {})));
  }
  CHECK_FALSE(results[0].equal(results[3]));
  CHECK(RelativeError(results[3], results[0]) < 5e-2);
  CHECK(RelativeError(results[4], results[1]) < 5e-2);
  CHECK(results[5].equal(results[2]));
}

}  // namespace
}  // namespace equipoise::ops
