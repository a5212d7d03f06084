// Every operation beside the same formula in ATen's own autograd and double precision: result,
// gradients of inputs, gradients of weights, in fp32, bf16 and fp16.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <set>

#include "models/ops/activation.h"
#include "models/ops/cross_entropy.h"
#include "models/ops/embedding.h"
#include "models/ops/gelu.h"
#include "models/ops/gradient_sums.h"
#include "models/ops/interpolated_positions.h"
#include "models/ops/linear.h"
#include "models/ops/norm.h"
#include "models/ops/patches.h"
#include "models/ops/rotary.h"
#include "models/ops/row_padding.h"
#include "models/ops/run_copy.h"
#include "tests/models/check_op.h"
#include "tests/models/model_support.h"

namespace equipoise {
namespace {

using testing::Check;
using testing::MakeParameters;
using testing::Normal;
using testing::Pointers;
using testing::Problem;
using testing::RelativeError;
using testing::Tensors;
using testing::Weights;

TEST_CASE("linear layers, alone and joined", "[ops][cpu]") {
  Check({{{3, 5, 16}},
         {{8, 16}, {8}},
         [](const Tensors& x, const Weights& w) { return ops::Linear(x[0], *w[0], w[1]); },
         [](const Tensors& x, const Tensors& w) { return at::linear(x[0], w[0], w[1]); }});
  // Rows that 16-bit products round up.
  Check({{{37, 16}},
         {{8, 16}, {8}},
         [](const Tensors& x, const Weights& w) { return ops::Linear(x[0], *w[0], w[1]); },
         [](const Tensors& x, const Tensors& w) { return at::linear(x[0], w[0], w[1]); }});
  // A convolution's weight over flattened patches.
  Check({{{7, 12}},
         {{8, 3, 2, 2}},
         [](const Tensors& x, const Weights& w) { return ops::Linear(x[0], *w[0]); },
         [](const Tensors& x, const Tensors& w) { return at::linear(x[0], w[0].flatten(1)); }});
  for (const bool adjacent : {true, false}) {
    Check({{{9, 16}},
           {{16, 16}, {8, 16}, {4, 16}, {16}, {8}, {4}},
           [](const Tensors& x, const Weights& w) {
             return ops::FusedLinear(x[0], {{w[0], w[3]}, {w[1], w[4]}, {w[2], w[5]}});
           },
           [](const Tensors& x, const Tensors& w) {
             return at::linear(x[0], at::cat({w[0], w[1], w[2]}), at::cat({w[3], w[4], w[5]}));
           }},
          adjacent);
  }
}

TEST_CASE("norms", "[ops][cpu]") {
  Check(
      {{{3, 5, 24}},
       {{24}, {24}},
       [](const Tensors& x, const Weights& w) { return ops::LayerNorm(x[0], *w[0], *w[1], 1e-5); },
       [](const Tensors& x, const Tensors& w) {
         return at::layer_norm(x[0], {24}, w[0], w[1], 1e-5);
       }});
  for (const int64_t size : {24, 33, 256}) {
    Check({{{3, 5, size}},
           {{size}},
           [](const Tensors& x, const Weights& w) { return ops::RmsNorm(x[0], *w[0], 1e-3); },
           [](const Tensors& x, const Tensors& w) {
             return x[0] * (x[0].square().mean(-1, true) + 1e-3).rsqrt() * w[0];
           }});
  }
}

TEST_CASE("a norm takes rows that are part of wider ones", "[ops][cpu]") {
  Check({{{6, 40}},
         {{16}},
         [](const Tensors& x, const Weights& w) {
           return ops::RmsNorm(x[0].narrow(1, 8, 16), *w[0], 1e-6);
         },
         [](const Tensors& x, const Tensors& w) {
           const at::Tensor part = x[0].narrow(1, 8, 16);
           return part * (part.square().mean(-1, true) + 1e-6).rsqrt() * w[0];
         }});
}

TEST_CASE("activations and layer scale", "[ops][cpu]") {
  Check({{{5, 2 * 24}},
         {},
         [](const Tensors& x, const Weights&) { return ops::SwiGlu(x[0]); },
         [](const Tensors& x, const Tensors&) {
           return at::silu(x[0].narrow(1, 0, 24)) * x[0].narrow(1, 24, 24);
         }});
  Check({{{2, 3, 8}, {2, 3, 8}},
         {{8}},
         [](const Tensors& x, const Weights& w) { return ops::ScaledResidual(x[0], x[1], *w[0]); },
         [](const Tensors& x, const Tensors& w) { return x[0] + x[1] * w[0]; }});
}

TEST_CASE("GELU, exact and approximate", "[ops][cpu]") {
  using ops::GeluForm;
  const auto check = [](GeluForm form,
                        const std::function<at::Tensor(const at::Tensor&)>& formula) {
    Check({{{5, 24}},
           {},
           [form](const Tensors& x, const Weights&) { return ops::Gelu(3 * x[0], form); },
           [formula](const Tensors& x, const Tensors&) { return formula(3 * x[0]); }});
  };
  check(GeluForm::kExact, [](const at::Tensor& x) { return at::gelu(x); });
  check(GeluForm::kTanh, [](const at::Tensor& x) { return at::gelu(x, "tanh"); });
  check(GeluForm::kQuick, [](const at::Tensor& x) { return x * at::sigmoid(1.702 * x); });
}

TEST_CASE("activations of every bf16 number, its tails too", "[ops][cpu]") {
  const at::Tensor bits = at::arange(-32768, 32768, at::kInt).to(at::kShort);
  at::Tensor x = bits.view(at::kBFloat16);
  x = x.index({at::isfinite(x)});
  const at::Tensor wide = x.to(at::kDouble);
  // An ulp of bf16; what is below e^-87 may be 0.
  const auto near = [](const at::Tensor& found, const at::Tensor& expected) {
    const at::Tensor bound = expected.abs() * 0x1p-7 + 1e-35;
    return ((found.to(at::kDouble) - expected).abs() <= bound).all().item<bool>();
  };
  const at::Tensor share = 0.5 * at::special_erfc(-wide / std::sqrt(2.0));
  CHECK(near(ops::Gelu(x), wide * share));
  x.requires_grad_();
  const at::Tensor slope = share + wide * (-0.5 * wide.square()).exp() / std::sqrt(2 * M_PI);
  ops::Gelu(x).backward(at::ones_like(x));
  // Where the two terms cancel each other the difference has their error.
  CHECK(
      ((x.grad().to(at::kDouble) - slope).abs() <= slope.abs() * 0x1p-7 + 2e-6).all().item<bool>());
  const at::Tensor gates = at::stack({x.detach(), at::ones_like(x)}, 1);
  CHECK(near(ops::SwiGlu(gates).squeeze(1), wide * at::sigmoid(wide)));
  CHECK(ops::Gelu(at::full({1}, NAN, at::kBFloat16)).isnan().item<bool>());
  CHECK(ops::SwiGlu(at::full({1, 2}, NAN, at::kBFloat16)).isnan().item<bool>());
}

TEST_CASE("embedding with image features in their places", "[ops][cpu]") {
  const at::Tensor ids = at::tensor({3, 6, 6, 1, 3, 0}, at::kLong);
  const at::Tensor places = at::tensor({1, 2}, at::kLong);
  Check({{{2, 8}},
         {{7, 8}},
         [&](const Tensors& x, const Weights& w) {
           return ops::EmbedAndSplice(ids, x[0], places, *w[0]);
         },
         [&](const Tensors& x, const Tensors& w) {
           return at::embedding(w[0], ids).index_copy(0, places, x[0]);
         }});
  // The padding token's row has no gradient.
  Check({{{2, 8}},
         {{7, 8}},
         [&](const Tensors& x, const Weights& w) {
           return ops::EmbedAndSplice(ids, x[0], places, *w[0], {nullptr, /*padding_id=*/3});
         },
         [&](const Tensors& x, const Tensors& w) {
           return at::embedding(w[0], ids, /*padding_idx=*/3).index_copy(0, places, x[0]);
         }});
  std::vector<Parameter> weight = MakeParameters({{7, 8}});
  FlatParameters flat(Pointers(weight), at::kFloat);
  CHECK_THROWS_WITH(ops::EmbedAndSplice(ids, at::ones({3, 8}), places, weight[0]),
                    Catch::Matchers::Contains("2 placeholder tokens for 3 image features"));
}

TEST_CASE("a vector in the place of some rows", "[ops][cpu]") {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{1, 4, 5}, {}}) {
    const at::Tensor places = at::tensor(rows, at::kLong);
    Check({{{6, 8}},
           {{8}},
           [&](const Tensors& x, const Weights& w) { return ops::PutVector(x[0], places, *w[0]); },
           [&](const Tensors& x, const Tensors& w) {
             return x[0].index_copy(0, places, w[0].expand({places.size(0), 8}));
           }});
  }
}

TEST_CASE("class token and positions", "[ops][cpu]") {
  Check({{{3, 4, 8}},
         {{1, 1, 8}, {1, 5, 8}},
         [](const Tensors& x, const Weights& w) {
           return ops::AddClassAndPositions(x[0], w[0], *w[1]);
         },
         [](const Tensors& x, const Tensors& w) {
           return at::cat({w[0].expand({3, 1, 8}), x[0]}, 1) + w[1];
         }});
  Check({{{3, 4, 8}},
         {{8}, {5, 8}},  // as CLIP stores them
         [](const Tensors& x, const Weights& w) {
           return ops::AddClassAndPositions(x[0], w[0], *w[1]);
         },
         [](const Tensors& x, const Tensors& w) {
           return at::cat({w[0].expand({3, 1, 8}), x[0]}, 1) + w[1];
         }});
  Check({{{3, 4, 8}},
         {{4, 8}},
         [](const Tensors& x, const Weights& w) {
           return ops::AddClassAndPositions(x[0], nullptr, *w[0]);
         },
         [](const Tensors& x, const Tensors& w) { return x[0] + w[0]; }});
}

TEST_CASE("rows interpolated from a table of positions", "[ops][cpu]") {
  // The same corner of several rows, and twice in one.
  const at::Tensor corners = at::tensor({0, 1, 3, 1, 1, 3, 2, 1, 3, 4, 4, 4}).view({4, 3});
  const at::Tensor weights = Normal({4, 3}, 7).abs();
  Check({{{3, 8}},
         {{5, 8}},
         [&](const Tensors& x, const Weights& w) {
           return ops::AddInterpolated(x[0], {corners.to(at::kLong), weights}, *w[0]);
         },
         [&](const Tensors& x, const Tensors& w) {
           const at::Tensor rows = w[0].index_select(0, corners.flatten().to(at::kLong));
           return x[0] + (rows.view({4, 3, 8}) * weights.unsqueeze(2)).sum(0);
         }});
}

TEST_CASE("patches come as a convolution sees them", "[ops][cpu]") {
  const at::Tensor images = Normal({2, 3, 8, 8}, 1), weight = Normal({5, 3, 4, 4}, 2);
  const at::Tensor expected = at::conv2d(images, weight, {}, {4, 4}).flatten(2).transpose(1, 2);
  const at::Tensor patches = ops::CutIntoPatches(images, 4, at::kFloat);
  CHECK(RelativeError(at::linear(patches, weight.flatten(1)), expected) < 1e-6);
}

TEST_CASE("runs of elements are copied in any order", "[ops][cpu]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kByte}) {
    const at::Tensor x = Normal({3, 4, 5, 6}, 1).mul(50).to(dtype);
    const auto check = [&](const at::Tensor& from) {
      const at::Tensor room =
          at::zeros({from.size(0), from.size(1), from.size(2), from.size(3) + 2}, from.options());
      const at::Tensor to = room.narrow(3, 1, from.size(3));
      ops::CopyRuns(from, to);
      CHECK(to.equal(from));
      CHECK(room.select(3, 0).eq(0).all().item<bool>());
      CHECK(room.select(3, from.size(3) + 1).eq(0).all().item<bool>());
    };
    check(x);
    check(x.permute({2, 0, 1, 3}));
    check(x.permute({1, 2, 0, 3}).narrow(3, 2, 3));
    check(x.narrow(1, 1, 2).narrow(0, 2, 1));
    check(x.permute({3, 0, 2, 1}));  // not in runs
    check(x.narrow(1, 0, 0));
    check(x.narrow(3, 0, 0));
  }
  const at::Tensor one = Normal({7}, 1), rounded = at::empty({7}, at::kHalf);
  ops::CopyRuns(one, rounded);
  CHECK(rounded.equal(one.to(at::kHalf)));
}

TEST_CASE("pixel shuffle merges squares", "[ops][cpu]") {
  Check({{{2, 17, 3}},
         {},
         [](const Tensors& x, const Weights&) { return ops::MergeSquares(x[0], 2); },
         [](const Tensors& x, const Tensors&) {
           // InternVL's own steps.
           at::Tensor t = x[0].narrow(1, 1, 16).reshape({2, 4, 4, 3}).view({2, 4, 2, 6});
           t = t.permute({0, 2, 1, 3}).contiguous().view({2, 2, 2, 12});
           return t.permute({0, 2, 1, 3}).contiguous().view({2, 4, 12});
         }});
}

TEST_CASE("rotary positions turn pairs", "[ops][cpu]") {
  const at::Tensor angles = Normal({5, 4}, 3);
  Check({{{5, 3 * 8}},
         {},
         [&](const Tensors& x, const Weights&) {
           return ops::Rotate(x[0], angles.cos(), angles.sin());
         },
         [&](const Tensors& x, const Tensors&) {
           const at::Tensor t = x[0].view({5, 3, 8}), a = t.narrow(2, 0, 4), b = t.narrow(2, 4, 4);
           const at::Tensor full = at::cat({angles, angles}, 1).to(at::kDouble).unsqueeze(1);
           return (t * full.cos() + at::cat({-b, a}, 2) * full.sin()).view({5, 24});
         }});
}

TEST_CASE("rotary positions turn the first elements of a head", "[ops][cpu]") {
  const at::Tensor angles = Normal({5, 3}, 3);
  Check({{{5, 3 * 8}},
         {},
         [&](const Tensors& x, const Weights&) {
           return ops::Rotate(x[0], angles.cos(), angles.sin(), 8);
         },
         [&](const Tensors& x, const Tensors&) {
           const at::Tensor t = x[0].view({5, 3, 8}), a = t.narrow(2, 0, 3), b = t.narrow(2, 3, 3);
           const at::Tensor full = at::cat({angles, angles}, 1).to(at::kDouble).unsqueeze(1);
           const at::Tensor turned =
               t.narrow(2, 0, 6) * full.cos() + at::cat({-b, a}, 2) * full.sin();
           return at::cat({turned, t.narrow(2, 6, 2)}, 2).view({5, 24});
         }});
}

TEST_CASE("cross entropy equals that of full logits", "[ops][cpu]") {
  // Small, as adding to it rounds the gradient's small elements.
  constexpr double kBefore = 0x1p-10;
  struct Case {
    int64_t rows, vocabulary;
    bool weighted;
  };
  // The last is two chunks.
  for (const Case& c : {Case{6, 11, false}, Case{6, 11, true}, Case{150, 140000, true}}) {
    for (const bool in_backward : {false, true}) {
      const at::Tensor ids = at::arange(c.rows, at::kLong).remainder(c.vocabulary);
      ops::Targets targets{ids, {}, 0.25};
      if (c.weighted) targets.weights = Normal({c.rows}, 4).abs();
      std::vector<Parameter> weight = MakeParameters({{c.vocabulary, 8}});
      FlatParameters flat(Pointers(weight), at::kFloat);
      weight[0].master.copy_(Normal({c.vocabulary, 8}, 5));
      weight[0].gradient.fill_(kBefore);
      const at::Tensor x = Normal({c.rows, 8}, 6).requires_grad_();
      const at::Tensor rx = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor rw = weight[0].value.to(at::kDouble).requires_grad_();
      at::Tensor losses = at::cross_entropy_loss(at::linear(rx, rw), ids, {}, at::Reduction::None);
      if (c.weighted) losses = losses * targets.weights;
      const at::Tensor expected = losses.sum() * 0.25;
      expected.backward();

      const at::Tensor loss = ops::LinearCrossEntropy(x, targets, weight[0], in_backward);
      CHECK(loss.scalar_type() == at::kDouble);
      CHECK(weight[0].gradient.eq(kBefore).all().item<bool>() == in_backward);
      loss.backward();
      CHECK(std::abs(loss.item<double>() / expected.item<double>() - 1) < 1e-6);
      // MKL's long sums are far off on some CPUs: no further than LibTorch's own graph in fp32.
      const at::Tensor sx = x.detach().clone().requires_grad_();
      at::Tensor single =
          at::cross_entropy_loss(at::linear(sx, weight[0].value), ids, {}, at::Reduction::None);
      if (c.weighted) single = single * targets.weights;
      (single.to(at::kDouble).sum() * 0.25).backward();
      const double of_libtorch = RelativeError(sx.grad(), rx.grad());
      CHECK(RelativeError(x.grad(), rx.grad()) < std::max(3e-6, 2 * of_libtorch));
      CHECK(RelativeError(weight[0].gradient - kBefore, rw.grad()) < 1e-5);
    }
  }
}

TEST_CASE("cross entropy in bfloat16, rows rounded up", "[ops][cpu]") {
  constexpr int64_t kRows = 37, kVocabulary = 50;
  const ops::Targets targets{at::arange(kRows, at::kLong), {}, 0.25};
  std::vector<Parameter> weight = MakeParameters({{kVocabulary, 8}});
  FlatParameters flat(Pointers(weight), at::kBFloat16);
  weight[0].value.copy_(Normal({kVocabulary, 8}, 5));
  const at::Tensor x = Normal({kRows, 8}, 6).to(at::kBFloat16).requires_grad_();
  const at::Tensor rx = x.detach().to(at::kDouble).requires_grad_();
  const at::Tensor rw = weight[0].value.to(at::kDouble).requires_grad_();
  const at::Tensor expected =
      at::cross_entropy_loss(at::linear(rx, rw), targets.ids, {}, at::Reduction::Sum) * 0.25;
  expected.backward();

  const at::Tensor loss = ops::LinearCrossEntropy(x, targets, weight[0], /*in_backward=*/false);
  loss.backward();
  CHECK(loss.item<double>() == Approx(expected.item<double>()).epsilon(1e-2));
  CHECK(RelativeError(x.grad(), rx.grad()) < 1.5e-2);
  CHECK(RelativeError(weight[0].gradient, rw.grad()) < 1.5e-2);
}

TEST_CASE("16-bit products meet few numbers of rows", "[ops][cpu]") {
  std::set<int64_t> sizes;
  for (int64_t rows = 0; rows <= 4096; ++rows) {
    const int64_t padded = ops::PaddedRows(rows);
    CHECK(padded >= rows);
    CHECK(padded < rows + std::max<int64_t>(16, rows / 64 + 1));
    CHECK(ops::PaddedRows(padded) == padded);
    if (rows < 16) CHECK(padded == rows);
    if (rows > 512 && rows <= 1024) sizes.insert(padded);
    if (rows > 1024 && rows <= 2048) sizes.insert(padded);
  }
  CHECK(sizes.size() == 32 + 64);

  const at::Tensor x = Normal({37, 8}, 1);
  CHECK(ops::PadRows(x, at::kFloat).is_same(x));
  const at::Tensor padded = ops::PadRows(x, at::kBFloat16);
  CHECK(padded.size(0) == 48);
  CHECK(padded.narrow(0, 0, 37).equal(x.to(at::kBFloat16)));
  CHECK(padded.narrow(0, 37, 11).count_nonzero().item<int64_t>() == 0);
  CHECK(ops::PadRows(padded, at::kBFloat16).is_same(padded));
}

TEST_CASE("sums for fp32 gradients", "[ops][cpu]") {
  const at::Tensor wide = Normal({65, 700}, 1).to(at::kBFloat16);
  // Contiguous; rows with a gap; columns with a gap, for which there is no kernel.
  for (const at::Tensor& g : {wide, wide.narrow(1, 3, 600), wide.t()}) {
    const at::Tensor sum = ops::SumOfRows(g);
    CHECK(sum.scalar_type() == at::kFloat);
    CHECK(RelativeError(sum, g.to(at::kDouble).sum(0)) < 1e-6);
    at::Tensor gradient = Normal(g.sizes().vec(), 2);
    const at::Tensor expected = gradient + g;
    ops::AddTo(gradient, g);
    CHECK(gradient.equal(expected));
  }
}

TEST_CASE("frozen weights cost nothing and inputs may need no gradient", "[ops][cpu]") {
  std::vector<Parameter> parameters = MakeParameters({{4, 8}, {4}, {8}});
  FlatParameters flat(Pointers(parameters), at::kFloat);
  flat.master().fill_(0.5);
  const at::Tensor x = Normal({3, 8}, 1);
  const auto run = [&](const at::Tensor& input) {
    return ops::Linear(ops::RmsNorm(input, parameters[2], 1e-6), parameters[0], &parameters[1]);
  };
  run(x).sum().backward();  // trains the weights though x needs no gradient
  for (const Parameter& p : parameters) CHECK(p.gradient.count_nonzero().item<int64_t>() > 0);

  flat.ZeroGradient();
  for (Parameter& p : parameters) p.trainable = false;
  CHECK_FALSE(run(x).requires_grad());
  const at::Tensor marked = x.clone().requires_grad_();
  run(marked).sum().backward();
  CHECK(marked.grad().count_nonzero().item<int64_t>() > 0);
  CHECK(flat.gradient().count_nonzero().item<int64_t>() == 0);
}

TEST_CASE("a weight is looked up when backward runs", "[ops][cpu]") {
  std::vector<Parameter> parameters = MakeParameters({{4, 8}});
  FlatParameters flat(Pointers(parameters), at::kFloat);
  flat.master().fill_(1);
  const at::Tensor x = at::ones({1, 8}).requires_grad_();
  const at::Tensor y = ops::Linear(x, parameters[0]);
  parameters[0].value = at::full({4, 8}, 3.0);  // gathered anew, elsewhere
  y.sum().backward();
  CHECK(x.grad().eq(12).all().item<bool>());
}

}  // namespace
}  // namespace equipoise
