// The row functions of the CUDA kernels, run on the CPU, beside LibTorch in fp64.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "models/ops/fp8_product.h"
#include "parallel/random_bits.h"
#include "tests/models/model_support.h"

namespace equipoise {
namespace {

using testing::Normal;

// Half a unit in the last place of a result, relative to it.
double Unit(at::ScalarType dtype) {
  if (dtype == at::kFloat) return 0;
  return dtype == at::kHalf ? 1.0 / 2048 : 1.0 / 256;
}

// A result is the fp64 one, rounded once, and what fp32 loses before.
void CheckRounded(const at::Tensor& found, const at::Tensor& expected) {
  REQUIRE(found.sizes() == expected.sizes());
  const double unit = Unit(found.scalar_type()) + 2e-6;
  const at::Tensor difference = (found.to(at::kDouble) - expected).abs();
  // Where terms of up to 50 cancel, 2^-24 of them is left.
  const at::Tensor bound = expected.abs() * unit + 1e-5;
  INFO("largest difference beside its bound " << (difference / bound).sum().item<double>());
  CHECK((difference <= bound).all().item<bool>());
}

template <class... Arguments>
at::Tensor Call(const char* name, const Arguments&... arguments) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<at::Tensor(const Arguments&...)>()
      .call(arguments...);
}

at::Tensor SwiGlu(const at::Tensor& gate_up) { return Call("equipoise::swi_glu", gate_up); }
at::Tensor SwiGluGradient(const at::Tensor& g, const at::Tensor& gate_up) {
  return Call("equipoise::swi_glu_gradient", g, gate_up);
}
at::Tensor Rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  double direction) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, double);
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("equipoise::rotary", "")
      .typed<Signature>()
      .call(x, cos, sin, direction);
}

at::Tensor Silu(const at::Tensor& x) { return x * at::sigmoid(x); }

TEST_CASE("SwiGLU's row functions are fp64's numbers rounded once", "[kernels]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {0, 1, 7}) {
      for (const int64_t n : {0, 1, 7, 8, 24, 4, 1000}) {
        INFO(dtype << " rows " << rows << " elements " << n);
        const at::Tensor x = Normal({rows, 2 * n}, 1).mul_(4).to(dtype);
        const at::Tensor g = Normal({rows, n}, 2).to(dtype);
        const at::Tensor wide = x.to(at::kDouble), above = g.to(at::kDouble);
        const at::Tensor gate = wide.narrow(1, 0, n), up = wide.narrow(1, n, n);
        CheckRounded(SwiGlu(x), Silu(gate) * up);
        const at::Tensor sigmoid = at::sigmoid(gate);
        CheckRounded(
            SwiGluGradient(g, x),
            at::cat({above * up * (sigmoid + gate * sigmoid * (1 - sigmoid)), above * Silu(gate)},
                    1));
      }
    }
  }
}

TEST_CASE("rotary row functions are fp64's numbers rounded once", "[kernels]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {0, 1, 5}) {
      for (const int64_t half : {1, 3, 4, 8, 64}) {
        for (const int64_t margin : {0, 1, 8}) {  // before q and k, and after
          INFO(dtype << " rows " << rows << " half " << half << " margin " << margin);
          const int64_t heads = 3, size = heads * 2 * half;
          const at::Tensor joined = Normal({rows, size + 2 * margin}, 1).to(dtype);
          const at::Tensor x = joined.narrow(1, margin, size);
          const at::Tensor angles = Normal({rows, half}, 2);
          const at::Tensor cos = angles.cos(), sin = angles.sin();
          const at::Tensor pairs = x.to(at::kDouble).reshape({rows, heads, 2, half});
          const at::Tensor c = cos.to(at::kDouble).unsqueeze(1);
          const at::Tensor s = sin.to(at::kDouble).unsqueeze(1);
          for (const double direction : {1.0, -1.0}) {
            const at::Tensor first = pairs.select(2, 0), second = pairs.select(2, 1);
            const at::Tensor turned = at::stack(
                {first * c - second * s * direction, second * c + first * s * direction}, 2);
            CheckRounded(Rotary(x, cos, sin, direction), turned.reshape({rows, size}));
          }
        }
      }
    }
  }
}

TEST_CASE("rows in fp8 by the row function have the bits of LibTorch's operations", "[kernels]") {
  using Signature = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&);
  const auto own =
      c10::Dispatcher::singleton().findSchemaOrThrow("equipoise::fp8_rows", "").typed<Signature>();
  for (const int64_t rows : {0, 1, 7}) {
    for (const int64_t n : {1, 7, 8, 16, 1000}) {
      INFO("rows " << rows << " elements " << n);
      const at::Tensor scales = at::exp(Normal({rows, 1}, 1).mul_(20));
      const at::Tensor x = (Normal({rows, n}, 2) * scales).to(at::kBFloat16);
      if (rows > 1) x.select(0, 1).zero_();
      if (rows > 2) x.select(0, 2).mul_(1e-38);
      const ops::Fp8Rows expected = ops::RoundRowsToFp8(x);
      const auto [codes, found] = own.call(x);
      CHECK(codes.view(at::kByte).equal(expected.codes.view(at::kByte)));
      CHECK(found.equal(expected.scales));
      // Columns of a matrix are rows of another.
      const auto [turned, turned_scales] = own.call(x.t().contiguous().t());
      CHECK(turned.view(at::kByte).equal(codes.view(at::kByte)));
      CHECK(turned_scales.equal(found));
    }
  }
}

TEST_CASE("scaled rows are fp64's numbers rounded once, with and without what is added",
          "[kernels]") {
  using Given = std::optional<at::Tensor>;
  const auto own = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("equipoise::scaled", "")
                       .typed<at::Tensor(const Given&, const at::Tensor&, const at::Tensor&)>();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {0, 1, 7}) {
      for (const int64_t n : {1, 8, 12, 1000}) {
        INFO(dtype << " rows " << rows << " elements " << n);
        const at::Tensor base = Normal({rows, n}, 1).to(dtype), x = Normal({rows, n}, 2).to(dtype);
        const at::Tensor scale = Normal({n}, 3).to(dtype);
        const at::Tensor product = x.to(at::kDouble) * scale.to(at::kDouble);
        CheckRounded(own.call({}, x, scale), product);
        CheckRounded(own.call(base, x, scale), product + base.to(at::kDouble));
      }
    }
  }
}

TEST_CASE("dropped rows are those of LibTorch's operations, to the bit", "[kernels]") {
  const auto own = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("equipoise::dropped", "")
                       .typed<at::Tensor(const at::Tensor&, int64_t, int64_t, int64_t, double)>();
  constexpr int64_t kKey = -0x123456789abcdef, kRow = 1000, kColumn = (int64_t{1} << 32) - 500;
  const auto hash = [](int64_t first, int64_t count, int64_t bits) {
    const at::Tensor numbers = at::arange(first, first + count, at::kLong);
    return MixedBits(numbers.bitwise_and(0xffffffff).bitwise_xor(bits & 0xffffffff));
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {0, 1, 7}) {
      for (const int64_t n : {1, 8, 12, 1000}) {
        INFO(dtype << " rows " << rows << " elements " << n);
        const at::Tensor x = Normal({rows, n}, 1).to(dtype);
        const at::Tensor bits =
            MixedBits(hash(kRow, rows, kKey)
                          .unsqueeze(1)
                          .bitwise_xor(hash(kColumn, n, kKey >> 32).unsqueeze(0)));
        const at::Tensor factors = bits.ge(std::llround(0.3 * 0x1p32)).to(dtype).mul_(1 / 0.7);
        CHECK(own.call(x, kKey, kRow, kColumn, 0.3).equal(x.mul(factors)));
      }
    }
  }
}

TEST_CASE("column sums are fp64's numbers, with and without factors", "[kernels]") {
  using Given = std::optional<at::Tensor>;
  using Signature = at::Tensor(const at::Tensor&, const Given&, const Given&, const Given&, bool);
  const auto own = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("equipoise::column_sums", "")
                       .typed<Signature>();
  const auto check = [](const at::Tensor& found, const at::Tensor& terms) {
    const at::Tensor bound = terms.abs().sum(0) * 1e-6 + 1e-6;
    CHECK(((found.to(at::kDouble) - terms.sum(0)).abs() <= bound).all().item<bool>());
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {0, 1, 127, 128, 300}) {
      for (const int64_t columns : {1, 8, 24, 256, 300, 1000}) {
        INFO(dtype << " rows " << rows << " columns " << columns);
        const at::Tensor g = Normal({rows, columns}, 1).to(dtype);
        const at::Tensor x = Normal({rows, columns}, 2).to(dtype);
        const at::Tensor mean = Normal({rows}, 3), rstd = Normal({rows}, 4).abs();
        const at::Tensor wide = g.to(at::kDouble), factor = x.to(at::kDouble);
        const at::Tensor normal =
            (factor - mean.to(at::kDouble).unsqueeze(1)) * rstd.to(at::kDouble).unsqueeze(1);
        const at::Tensor sum = own.call(g, {}, {}, {}, false);
        REQUIRE(sum.sizes() == at::IntArrayRef({1, columns}));
        check(sum[0], wide);
        check(own.call(g, x, {}, {}, false)[0], wide * factor);
        check(own.call(g, x, {}, rstd, false)[0],
              wide * factor * rstd.to(at::kDouble).unsqueeze(1));
        const at::Tensor both = own.call(g, x, mean, rstd, true);
        check(both[0], wide * normal);
        CHECK(both[1].equal(sum[0]));
        // Columns of a wider matrix.
        const at::Tensor joined = at::cat({x, g, x}, 1);
        CHECK(own.call(joined.narrow(1, columns, columns), {}, {}, {}, false).equal(sum));
      }
    }
  }
}

at::Tensor Statistics(const at::Tensor& logits, const at::Tensor& ids) {
  return Call("equipoise::softmax_statistics", logits, ids);
}

void TurnIntoGradient(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& statistics,
                      const std::optional<at::Tensor>& weights, double scale) {
  using Signature = void(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, double);
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("equipoise::cross_entropy_gradient_", "")
      .typed<Signature>()
      .call(logits, ids, statistics, weights, scale);
}

bool Near(const at::Tensor& found, const at::Tensor& expected, double unit, double least) {
  return (found.to(at::kDouble) - expected)
      .abs()
      .le(expected.abs() * unit + least)
      .all()
      .item<bool>();
}

TEST_CASE("cross entropy's row functions are fp64's numbers", "[kernels]") {
  constexpr int64_t kRows = 5;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t n : {1, 3, 8, 19, 1000, 4097}) {  // rows begin anywhere within a pack
      INFO(dtype << " vocabulary " << n);
      const at::Tensor logits = Normal({kRows, n}, 1).mul_(6).to(dtype);
      logits.narrow(0, 2, 1).fill_(-1000);
      const at::Tensor wide = logits.to(at::kDouble);
      // The last two targets are another rank's.
      const at::Tensor ids = at::tensor({int64_t{0}, n - 1, n / 2, int64_t{-1}, n}, at::kLong);
      const at::Tensor here = ids.ge(0).logical_and(ids.lt(n)).unsqueeze(1);
      const at::Tensor places = ids.clamp(0, n - 1).unsqueeze(1);

      const at::Tensor statistics = Statistics(logits, ids);
      const at::Tensor largest = wide.amax(1);
      CHECK(statistics[0].to(at::kDouble).equal(largest));
      CHECK(Near(statistics[1], wide.sub(largest.unsqueeze(1)).exp().sum(1), 4e-6, 0));
      CHECK(statistics[2].to(at::kDouble).equal(wide.gather(1, places).mul(here).squeeze(1)));

      const at::Tensor weights = at::linspace(0.5, 2, kRows, at::kFloat);
      const at::Tensor expected =
          at::softmax(wide, 1).scatter_add(1, places, here.to(at::kDouble).neg());
      const double unit = 4e-6 + Unit(dtype);
      for (const bool weighted : {false, true}) {
        const at::Tensor found = logits.clone();
        TurnIntoGradient(found, ids, statistics, weighted ? std::optional(weights) : std::nullopt,
                         0.25);
        CHECK(Near(found, weighted ? expected * weights.unsqueeze(1) * 0.25 : expected * 0.25, unit,
                   3e-7));
      }
    }
  }
  // A row that is not finite has no loss.
  const at::Tensor bad = at::zeros({3, 20});
  bad[0][3] = std::numeric_limits<float>::quiet_NaN();
  bad[1][3] = std::numeric_limits<float>::infinity();
  bad[2][3] = -std::numeric_limits<float>::infinity();
  const at::Tensor sums = Statistics(bad, at::zeros({3}, at::kLong))[1];
  CHECK(at::isfinite(sums).equal(at::tensor({0, 0, 1}).to(at::kBool)));
}

TEST_CASE("row functions take rows at addresses that are not aligned", "[kernels]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor memory = Normal({3 * 16 + 1}, 5).to(dtype);
    const at::Tensor x = memory.narrow(0, 1, 48).view({3, 16});
    CHECK(SwiGlu(x).equal(SwiGlu(x.clone())));
  }
}

TEST_CASE("SwiGLU of gates beyond the range of exp", "[kernels]") {
  const at::Tensor gates = at::tensor({-200.0F, -89.0F, 0.0F, 89.0F, 200.0F});
  const at::Tensor x = at::cat({gates, at::ones({5})}).view({1, 10});
  const at::Tensor expected = Silu(gates.to(at::kDouble)).view({1, 5});
  CheckRounded(SwiGlu(x), expected);
  const at::Tensor g = SwiGluGradient(at::ones({1, 5}), x);
  CHECK(at::isfinite(g).all().item<bool>());
  const at::Tensor nan = at::full({1, 2}, std::numeric_limits<float>::quiet_NaN());
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    CHECK(std::isnan(SwiGlu(nan.to(dtype)).item<float>()));
}

}  // namespace
}  // namespace equipoise
