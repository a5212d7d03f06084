#include "models/ops/matrix_product.h"

#include <ATen/ATen.h>

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/models/model_support.h"
#include "tests/skip_case.h"

namespace equipoise {
namespace {

using testing::Normal;

// The same numbers [rows, columns] in other places of memory.
std::vector<at::Tensor> Layouts(const at::Tensor& x) {
  const int64_t rows = x.size(0), columns = x.size(1);
  at::Tensor wide = at::full({rows, columns + 3}, 7.0F, x.options());
  at::Tensor part = wide.narrow(1, 2, columns);
  part.copy_(x);
  at::Tensor apart = at::full({rows, 2 * columns}, 7.0F, x.options());
  at::Tensor every_second = apart.slice(1, 0, 2 * columns, 2);
  every_second.copy_(x);
  return {x, x.t().contiguous().t(), part, every_second};
}

void CheckNear(const at::Tensor& found, const at::Tensor& expected) {
  REQUIRE(found.sizes() == expected.sizes());
  // A sum of 700 products of normal numbers has terms of up to 10, and MKL's blocks are long.
  const at::Tensor bound = expected.abs() * 1e-6 + 1e-4;
  CHECK(((found.to(at::kDouble) - expected).abs() <= bound).all().item<bool>());
}

TEST_CASE("products of matrices in any layout are fp64's, by oneDNN and by LibTorch", "[ops]") {
  const bool use = GENERATE(true, false);
  ops::UseOneDnn(use);
  CHECK((use || !ops::ProductsAreOneDnns()));
  for (const int64_t m : {1, 3, 128}) {
    for (const int64_t k : {1, 64, 700}) {
      for (const int64_t n : {1, 7, 48}) {
        INFO("oneDNN " << use << " sizes " << m << ' ' << k << ' ' << n);
        const at::Tensor x = Normal({m, k}, 1), y = Normal({k, n}, 2), c = Normal({m, n}, 3);
        const at::Tensor bias = Normal({n}, 4);
        const at::Tensor before = bias.clone();
        const at::Tensor product = at::mm(x.to(at::kDouble), y.to(at::kDouble));
        for (const at::Tensor& a : Layouts(x)) {
          for (const at::Tensor& b : Layouts(y)) {
            CheckNear(ops::MatrixProduct(a, b), product);
            CheckNear(ops::MatrixProductPlus(bias, a, b), product + before.to(at::kDouble));
            for (const at::Tensor& sum : Layouts(c.clone())) {
              const at::Tensor beside = sum.clone();
              ops::AddMatrixProduct(sum, a, b);
              CheckNear(sum, product + c.to(at::kDouble));
              ops::MatrixProductInto(sum, a, b);
              CheckNear(sum, product);
              sum.copy_(beside);
            }
          }
        }
        CHECK(bias.equal(before));
      }
    }
  }
  ops::UseOneDnn(true);
}

TEST_CASE("a result writes nothing beside itself", "[ops]") {
  // A small product, which is always LibTorch's, and a large one.
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{6, 4, 5}, {130, 700, 51}}) {
    const at::Tensor wide = at::full({m, n + 5}, 7.0F);
    at::Tensor part = wide.narrow(1, 2, n);
    const at::Tensor x = Normal({m, k}, 1), y = Normal({k, n}, 2);
    ops::MatrixProductInto(part, x, y);
    ops::AddMatrixProduct(part, x, y);
    CheckNear(part, 2 * at::mm(x.to(at::kDouble), y.to(at::kDouble)));
    CHECK(wide.narrow(1, 0, 2).eq(7).all().item<bool>());
    CHECK(wide.narrow(1, n + 2, 3).eq(7).all().item<bool>());
  }
}

TEST_CASE("products of nothing, and in 16 bits, are LibTorch's", "[ops]") {
  CHECK(ops::MatrixProduct(Normal({0, 4}, 1), Normal({4, 5}, 2)).sizes() ==
        at::IntArrayRef({0, 5}));
  CHECK(ops::MatrixProduct(Normal({3, 0}, 1), Normal({0, 5}, 2)).eq(0).all().item<bool>());
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor a = Normal({3, 4}, 1).to(dtype), b = Normal({4, 5}, 2).to(dtype);
    CHECK(ops::MatrixProduct(a, b).equal(at::mm(a, b)));
    const at::Tensor bias = Normal({5}, 3).to(dtype);
    CHECK(ops::MatrixProductPlus(bias, a, b).equal(at::addmm(bias, a, b)));
  }
}

TEST_CASE("long sums are exact to a few units in the last place by oneDNN", "[ops]") {
  // MKL's are off by up to 1e-5 on CPUs that are not Intel's.
  if (!ops::ProductsAreOneDnns()) return testing::SkipCase("products are LibTorch's here");
  constexpr int64_t kLong = 140000;  // a vocabulary, whose first logits have most of the gradient
  const at::Tensor y = Normal({kLong, 16}, 1);
  for (const int64_t rows : {2, 33, 150}) {
    at::Tensor x = Normal({rows, kLong}, 2).abs_().div_(kLong);
    x.narrow(1, 0, 1).fill_(-1);
    const at::Tensor expected = at::mm(x.to(at::kDouble), y.to(at::kDouble));
    CHECK(testing::RelativeError(ops::MatrixProduct(x, y), expected) < 3e-6);
    CHECK(testing::RelativeError(ops::MatrixProduct(y.t(), x.t()).t(), expected) < 3e-6);
  }
}

TEST_CASE("a row's product is the same twice, in one thread and in two", "[ops]") {
  const at::Tensor a = Normal({640, 192}, 1), b = Normal({192, 768}, 2);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    CHECK(ops::MatrixProduct(a, b).equal(ops::MatrixProduct(a, b)));
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace equipoise
