// Every operation beside the same formula in ATen's own autograd and double precision: result,
// gradients of inputs, gradients of weights, in fp32, bf16 and fp16.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <set>

#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/cross_entropy.h"
#include "models/ops/embedding.h"
#include "models/ops/gradient_sums.h"
#include "models/ops/interpolated_positions.h"
#include "models/ops/linear.h"
#include "models/ops/norm.h"
#include "models/ops/patches.h"
#include "models/ops/quick_gelu.h"
#include "models/ops/rotary.h"
#include "models/ops/row_padding.h"
#include "tests/models/model_support.h"

namespace equipoise {
namespace {

using testing::Normal;
using testing::RelativeError;
using Tensors = std::vector<at::Tensor>;
using Weights = std::vector<Parameter*>;

struct Problem {
  std::vector<std::vector<int64_t>> inputs, weights;
  std::function<at::Tensor(const Tensors&, const Weights&)> ours;
  std::function<at::Tensor(const Tensors&, const Tensors&)> reference;
};

std::vector<Parameter> MakeParameters(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<Parameter> parameters(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    parameters[i].name = "w" + std::to_string(i);
    parameters[i].shape = shapes[i];
  }
  return parameters;
}

Weights Pointers(std::vector<Parameter>& parameters) {
  Weights pointers;
  for (Parameter& parameter : parameters) pointers.push_back(&parameter);
  return pointers;
}

// `adjacent` = weights behind each other in one buffer, as in training; else each on its own.
void Check(const Problem& problem, bool adjacent = true) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    std::vector<Parameter> parameters = MakeParameters(problem.weights);
    const Weights weights = Pointers(parameters);
    FlatParameters flat(weights, dtype);
    Tensors inputs, reference_inputs, reference_weights;
    for (size_t i = 0; i < problem.inputs.size(); ++i) {
      inputs.push_back(Normal(problem.inputs[i], 10 + i).to(dtype).requires_grad_());
      reference_inputs.push_back(inputs[i].detach().to(at::kDouble).requires_grad_());
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      Parameter& p = *weights[i];
      p.value.copy_(Normal(p.shape, 20 + i).add_(0.5));
      if (!adjacent) {
        p.value = p.value.clone();
        p.gradient = p.gradient.clone();
      }
      reference_weights.push_back(p.value.detach().to(at::kDouble).requires_grad_());
    }
    const at::Tensor y = problem.ours(inputs, weights);
    const at::Tensor expected = problem.reference(reference_inputs, reference_weights);
    const at::Tensor g = Normal(y.sizes().vec(), 30).to(y.scalar_type());
    y.backward(g);
    expected.backward(g.to(at::kDouble));

    const double bound = dtype == at::kFloat ? 3e-6 : dtype == at::kHalf ? 2e-3 : 1.5e-2;
    INFO("dtype " << dtype);
    CHECK(RelativeError(y.detach(), expected.detach()) <= bound);
    for (size_t i = 0; i < inputs.size(); ++i) {
      INFO("input " << i);
      CHECK(RelativeError(inputs[i].grad(), reference_inputs[i].grad()) <= bound);
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      INFO("weight " << i);
      CHECK(RelativeError(weights[i]->gradient, reference_weights[i].grad()) <= bound);
    }
  }
}

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

TEST_CASE("quick GELU", "[ops][cpu]") {
  Check({{{5, 24}},
         {},
         [](const Tensors& x, const Weights&) { return ops::QuickGelu(x[0]); },
         [](const Tensors& x, const Tensors&) { return x[0] * at::sigmoid(1.702 * x[0]); }});
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

// Attention of one segment, [rows, heads * 8], by the definition.
at::Tensor Definition(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  const int64_t rows = q.size(0), repeats = q.size(1) / k.size(1);
  const auto heads = [&](const at::Tensor& t) { return t.view({rows, -1, 8}).transpose(0, 1); };
  const at::Tensor keys = heads(k).repeat_interleave(repeats, 0);
  const at::Tensor values = heads(v).repeat_interleave(repeats, 0);
  at::Tensor scores = heads(q).matmul(keys.transpose(1, 2)) / std::sqrt(8.0);
  if (causal) {
    scores = scores.masked_fill(at::ones({rows, rows}, at::kBool).triu(1), -INFINITY);
  }
  return scores.softmax(-1).matmul(values).transpose(0, 1).reshape({rows, -1});
}

TEST_CASE("packed attention is that of each segment", "[ops][cpu]") {
  const std::vector<int64_t> cu_seqlens = {0, 5, 5, 6, 40};
  for (const int64_t kv_heads : {1, 2, 4}) {
    Check({{{40, 4 * 8}, {40, kv_heads * 8}, {40, kv_heads * 8}},
           {},
           [&](const Tensors& x, const Weights&) {
             return ops::PackedAttention(x[0], x[1], x[2], cu_seqlens, 8);
           },
           [&](const Tensors& x, const Tensors&) {
             Tensors parts;
             for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
               const auto cut = [&](const at::Tensor& t) {
                 return t.narrow(0, cu_seqlens[s], cu_seqlens[s + 1] - cu_seqlens[s]);
               };
               if (cut(x[0]).size(0) == 0) continue;
               parts.push_back(Definition(cut(x[0]), cut(x[1]), cut(x[2]), true));
             }
             return at::cat(parts);
           }});
  }
}

TEST_CASE("attention of some rows is theirs of all", "[ops][cpu]") {
  const std::vector<int64_t> cu_seqlens = {0, 5, 5, 6, 40};
  // From the front, the middle and the end of a segment, and a whole one.
  const std::vector<Range> ranges = GENERATE(std::vector<Range>{{0, 2}, {6, 10}, {30, 40}},
                                             std::vector<Range>{{3, 5}, {5, 6}, {17, 19}},
                                             std::vector<Range>{{6, 40}});
  int64_t rows = 0;
  for (const Range& range : ranges) rows += range.size();
  for (const int64_t kv_heads : {1, 2, 4}) {
    Check({{{rows, 4 * 8}, {40, kv_heads * 8}, {40, kv_heads * 8}},
           {},
           [&](const Tensors& x, const Weights&) {
             return ops::AttentionOfRows(x[0], x[1], x[2], ranges, cu_seqlens, 8);
           },
           [&](const Tensors& x, const Tensors&) {
             // Queries of other rows are zeros, and their results are left out.
             at::Tensor q = at::zeros({40, 32}, x[0].options());
             std::vector<at::Tensor> parts = {q.narrow(0, 0, 0)};
             int64_t begin = 0;
             Tensors pieces;
             for (const Range& range : ranges) {
               pieces.push_back(at::constant_pad_nd(x[0].narrow(0, begin, range.size()),
                                                    {0, 0, range.begin, 40 - range.end}));
               begin += range.size();
             }
             for (const at::Tensor& piece : pieces) q = q + piece;
             for (const Range& range : ranges) {
               const auto end =
                   std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), range.begin);
               const int64_t first = *std::prev(end), size = *end - first;
               const auto cut = [&](const at::Tensor& t) { return t.narrow(0, first, size); };
               parts.push_back(Definition(cut(q), cut(x[1]), cut(x[2]), true)
                                   .narrow(0, range.begin - first, range.size()));
             }
             return at::cat(parts);
           }});
  }
}

TEST_CASE("attention of no rows has a gradient, of zeros", "[ops][cpu]") {
  const at::Tensor q = Normal({0, 32}, 1).requires_grad_(), k = Normal({9, 16}, 2).requires_grad_();
  const at::Tensor y = ops::AttentionOfRows(q, k, k, {}, {0, 9}, 8);
  CHECK(y.sizes().equals(q.sizes()));
  y.backward(at::zeros_like(y));
  CHECK(k.grad().equal(at::zeros({9, 16})));
}

TEST_CASE("full attention is that of each tile", "[ops][cpu]") {
  Check({{{2, 9, 24}, {2, 9, 24}, {2, 9, 24}},
         {},
         [](const Tensors& x, const Weights&) { return ops::FullAttention(x[0], x[1], x[2], 8); },
         [](const Tensors& x, const Tensors&) {
           return at::stack({Definition(x[0][0], x[1][0], x[2][0], false),
                             Definition(x[0][1], x[1][1], x[2][1], false)});
         }});
}

TEST_CASE("a segment's bits do not depend on its neighbours", "[ops][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto run = [&](const std::vector<int64_t>& lengths, size_t segment) {
    std::vector<int64_t> cu_seqlens = {0};
    Tensors pieces;
    for (size_t s = 0; s < lengths.size(); ++s) {
      cu_seqlens.push_back(cu_seqlens.back() + lengths[s]);
      pieces.push_back(Normal({lengths[s], 32}, s == segment ? 7 : 90 + s).to(dtype));
    }
    const at::Tensor x = at::cat(pieces).requires_grad_();
    const at::Tensor y =
        ops::PackedAttention(x, x.narrow(1, 0, 16), x.narrow(1, 16, 16), cu_seqlens, 8);
    y.backward(at::ones_like(y));
    const auto cut = [&](const at::Tensor& t) {
      return t.narrow(0, cu_seqlens[segment], lengths[segment]).clone();
    };
    return std::make_pair(cut(y.detach()), cut(x.grad()));
  };
  const auto alone = run({37}, 0), first = run({37, 5}, 0), last = run({3, 64, 37}, 2);
  CHECK(alone.first.equal(first.first));
  CHECK(alone.first.equal(last.first));
  CHECK(alone.second.equal(first.second));
  CHECK(alone.second.equal(last.second));
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
      const at::Tensor rx = x.detach().clone().requires_grad_();
      const at::Tensor rw = weight[0].value.clone().requires_grad_();
      at::Tensor losses = at::cross_entropy_loss(at::linear(rx, rw), ids, {}, at::Reduction::None);
      if (c.weighted) losses = losses * targets.weights;
      const at::Tensor expected = losses.to(at::kDouble).sum() * 0.25;
      expected.backward();

      const at::Tensor loss = ops::LinearCrossEntropy(x, targets, weight[0], in_backward);
      CHECK(loss.scalar_type() == at::kDouble);
      CHECK(weight[0].gradient.eq(kBefore).all().item<bool>() == in_backward);
      loss.backward();
      CHECK(std::abs(loss.item<double>() / expected.item<double>() - 1) < 1e-6);
      CHECK(RelativeError(x.grad(), rx.grad()) < 3e-6);
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
    CHECK(padded < rows + std::max<int64_t>(16, rows / (rows < 1024 ? 8 : 16) + 1));
    CHECK(ops::PaddedRows(padded) == padded);
    if (rows < 16) CHECK(padded == rows);
    if (rows > 512 && rows <= 1024) sizes.insert(padded);
    if (rows > 1024 && rows <= 2048) sizes.insert(padded);
  }
  CHECK(sizes.size() == 8 + 16);

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
