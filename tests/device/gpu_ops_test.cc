// Every operation beside the same one in fp64, composed of LibTorch's plain operations: at the
// shapes of real models on a GPU, and at small ones on the CPU.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/ops/activation.h"
#include "models/ops/attention.h"
#include "models/ops/cross_entropy.h"
#include "models/ops/embedding.h"
#include "models/ops/linear.h"
#include "models/ops/norm.h"
#include "models/ops/rotary.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/zero/adamw.h"
#include "parallel/zero/square_nodes.h"
#include "parallel/zero/tree_sum.h"
#include "tests/device/check_packed.h"
#include "tests/models/model_support.h"
#include "tests/skip_case.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/open_kernels.h"

namespace equipoise {
namespace {

using testing::RelativeError;
using Shapes = std::vector<std::vector<int64_t>>;
using Tensors = std::vector<at::Tensor>;
using Weights = std::vector<Parameter*>;

struct Sizes {
  int64_t rows, hidden, inner, heads, key_heads;  // of the language model
  std::vector<int64_t> head_dims;
  int64_t segments;
  int64_t tiles, tile_rows, tile_heads;
  int64_t vocabulary, trained_rows;
};

// InternVL2-2B's shapes, and heads of 64 besides.
const Sizes kReal = {8192, 2048, 8192, 16, 8, {64, 128}, 40, 20, 1025, 16, 92553, 2000};
const Sizes kSmall = {96, 32, 48, 4, 2, {8, 16}, 5, 2, 17, 2, 211, 40};

struct Problem {
  std::string name;
  Shapes inputs, weights;
  std::function<at::Tensor(const Tensors& inputs, const Weights&)> ours;
  std::function<at::Tensor(const Tensors& inputs, const Tensors& weights)> plain;
};

// Result, gradients of inputs, gradients of weights.
struct Run {
  at::Tensor y;
  Tensors gradients;
};

at::Tensor Random(const std::vector<int64_t>& shape, at::Device device) {
  return at::randn(shape, at::TensorOptions(device).dtype(at::kFloat));
}

Tensors Leaves(const Tensors& values, at::ScalarType dtype) {
  Tensors leaves;
  for (const at::Tensor& value : values) {
    leaves.push_back(value.detach().to(dtype).clone().requires_grad_());
  }
  return leaves;
}

void AppendGradients(const Tensors& leaves, Run& run) {
  for (const at::Tensor& leaf : leaves) run.gradients.push_back(leaf.grad());
}

// `kernels`: whose they are.
void Check(const Problem& problem, at::ScalarType dtype, at::Device device, const char* kernels) {
  at::manual_seed(7);
  std::vector<Parameter> parameters(problem.weights.size());
  Weights weights;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].name = "w" + std::to_string(i);
    parameters[i].shape = problem.weights[i];
    weights.push_back(&parameters[i]);
  }
  FlatParameters flat(weights, dtype, /*shards=*/1, device);
  for (Parameter* weight : weights) {
    const at::Tensor random = Random(weight->shape, device);
    const auto columns = static_cast<double>(weight->shape.back());
    weight->master.copy_(weight->shape.size() > 1 ? random.div_(std::sqrt(columns))
                                                  : random.mul_(0.1).add_(1));
  }
  flat.UpdateCompute();
  flat.DropMasters();  // their memory is the gradient's
  Tensors values, weight_values;
  for (const auto& shape : problem.inputs) values.push_back(Random(shape, device).to(dtype));
  for (const Parameter* weight : weights) weight_values.push_back(weight->value);

  Run ours, plain;
  const Tensors inputs = Leaves(values, dtype);
  ours.y = problem.ours(inputs, weights);
  CHECK(ours.y.device() == device);
  const at::Tensor gradient = ours.y.dim() == 0
                                  ? at::ones_like(ours.y)
                                  : Random(ours.y.sizes().vec(), device).to(ours.y.scalar_type());
  ours.y.backward(gradient);
  AppendGradients(inputs, ours);
  for (const Parameter* weight : weights) ours.gradients.push_back(weight->gradient);

  const Tensors exact = Leaves(values, at::kDouble),
                exact_weights = Leaves(weight_values, at::kDouble);
  plain.y = problem.plain(exact, exact_weights);
  plain.y.backward(gradient.to(at::kDouble));
  AppendGradients(exact, plain);
  AppendGradients(exact_weights, plain);

  const double result = RelativeError(ours.y.detach(), plain.y.detach());
  double worst = 0;
  for (size_t i = 0; i < ours.gradients.size(); ++i) {
    const double error = RelativeError(ours.gradients[i], plain.gradients[i]);
    if (std::isnan(error) || error > worst) worst = error;
  }
  // scripts/gpu-pack shows these lines.
  std::printf("ops\t%s\t%s\t%s\t%.1e\t%.1e\n", kernels, problem.name.c_str(),
              dtype == at::kFloat ? "fp32" : "bf16", result, worst);
  INFO(problem.name << " in " << dtype << ": result " << result << ", gradients " << worst);
  const double bound = dtype == at::kFloat ? 2e-5 : 2e-2;  // a false operation is off by about 1
  CHECK(result <= bound);
  CHECK(worst <= bound);
}

// Begins and ends of uneven segments, some of one row, that fill the rows.
std::vector<int64_t> SegmentEnds(int64_t rows, int64_t segments) {
  std::vector<int64_t> ends = {0};
  const int64_t share = rows / (4 * segments);
  for (int64_t i = 0; i + 1 < segments; ++i) ends.push_back(ends.back() + 1 + share * (i % 7));
  ends.push_back(rows);
  return ends;
}

// Softmax attention of q [batch, heads, rows, n], causal or not.
at::Tensor PlainSoftmax(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        bool causal) {
  at::Tensor scores = q.matmul(k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(-1)));
  if (causal) {
    const at::Tensor later = at::ones({q.size(-2), q.size(-2)}, q.options()).triu(1);
    scores = scores.masked_fill(later.to(at::kBool), -INFINITY);
  }
  return scores.softmax(-1).matmul(v);
}

at::Tensor PlainAttention(const Tensors& x, const std::vector<int64_t>& ends, int64_t head_dim) {
  Tensors parts;
  for (size_t i = 1; i < ends.size(); ++i) {
    const auto heads = [&](const at::Tensor& t) {
      return t.slice(0, ends[i - 1], ends[i]).unflatten(1, {-1, head_dim}).transpose(0, 1);
    };
    const at::Tensor q = heads(x[0]);
    const int64_t group = x[0].size(1) / x[1].size(1);
    const at::Tensor k = heads(x[1]).repeat_interleave(group, 0),
                     v = heads(x[2]).repeat_interleave(group, 0);
    parts.push_back(PlainSoftmax(q, k, v, /*causal=*/true).transpose(0, 1).flatten(1));
  }
  return at::cat(parts);
}

std::vector<Problem> RowProblems(const Sizes& s) {
  std::vector<Problem> problems;
  problems.push_back(
      {"RMSNorm",
       {{s.rows, s.hidden}},
       {{s.hidden}},
       [](const Tensors& x, const Weights& w) { return ops::RmsNorm(x[0], *w[0], 1e-6); },
       [](const Tensors& x, const Tensors& w) {
         return x[0] * x[0].square().mean({-1}, true).add(1e-6).rsqrt() * w[0];
       }});
  problems.push_back(
      {"LayerNorm",
       {{s.tiles, s.tile_rows, s.hidden}},
       {{s.hidden}, {s.hidden}},
       [](const Tensors& x, const Weights& w) { return ops::LayerNorm(x[0], *w[0], *w[1], 1e-6); },
       [n = s.hidden](const Tensors& x, const Tensors& w) {
         return at::layer_norm(x[0], {n}, w[0], w[1], 1e-6);
       }});
  problems.push_back({"SwiGLU",
                      {{s.rows, 2 * s.inner}},
                      {},
                      [](const Tensors& x, const Weights&) { return ops::SwiGlu(x[0]); },
                      [n = s.inner](const Tensors& x, const Tensors&) {
                        return at::silu(x[0].narrow(1, 0, n)) * x[0].narrow(1, n, n);
                      }});
  problems.push_back(
      {"layer scale",
       {{s.tiles * s.tile_rows, s.hidden}, {s.tiles * s.tile_rows, s.hidden}},
       {{s.hidden}},
       [](const Tensors& x, const Weights& w) { return ops::ScaledResidual(x[0], x[1], *w[0]); },
       [](const Tensors& x, const Tensors& w) { return x[0] + x[1] * w[0]; }});
  return problems;
}

std::vector<Problem> LinearProblems(const Sizes& s) {
  std::vector<Problem> problems;
  const int64_t keys = s.hidden * s.key_heads / s.heads;
  problems.push_back(
      {"query, key, value",
       {{s.rows, s.hidden}},
       {{s.hidden, s.hidden}, {keys, s.hidden}, {keys, s.hidden}, {s.hidden}, {keys}, {keys}},
       [](const Tensors& x, const Weights& w) {
         return ops::FusedLinear(x[0], {{w[0], w[3]}, {w[1], w[4]}, {w[2], w[5]}});
       },
       [](const Tensors& x, const Tensors& w) {
         return at::linear(x[0], at::cat({w[0], w[1], w[2]}), at::cat({w[3], w[4], w[5]}));
       }});
  problems.push_back({"linear, down",
                      {{s.rows, s.inner}},
                      {{s.hidden, s.inner}},
                      [](const Tensors& x, const Weights& w) { return ops::Linear(x[0], *w[0]); },
                      [](const Tensors& x, const Tensors& w) { return at::linear(x[0], w[0]); }});
  return problems;
}

std::vector<Problem> AttentionProblems(const Sizes& s, at::Device device) {
  std::vector<Problem> problems;
  for (const int64_t n : s.head_dims) {
    const std::vector<int64_t> q = {s.rows, s.heads * n}, k = {s.rows, s.key_heads * n};
    const std::string heads =
        std::to_string(n) + ", " + std::to_string(s.heads) + "/" + std::to_string(s.key_heads);
    for (const int64_t segments : {s.segments, int64_t{2}}) {
      const std::vector<int64_t> ends = SegmentEnds(s.rows, segments);
      problems.push_back(
          {"packed attention, heads of " + heads + ", " + std::to_string(segments) + " segments",
           {q, k, k},
           {},
           [=](const Tensors& x, const Weights&) {
             return ops::PackedAttention(x[0], x[1], x[2], ends, n);
           },
           [=](const Tensors& x, const Tensors&) { return PlainAttention(x, ends, n); }});
    }
    const std::vector<int64_t> tiles = {s.tiles, s.tile_rows, s.tile_heads * n};
    problems.push_back(
        {"attention of tiles, heads of " + std::to_string(n),
         {tiles, tiles, tiles},
         {},
         [=](const Tensors& x, const Weights&) { return ops::FullAttention(x[0], x[1], x[2], n); },
         [=](const Tensors& x, const Tensors&) {
           const auto heads_of = [&](const at::Tensor& t) {
             return t.unflatten(2, {-1, n}).transpose(1, 2);
           };
           return PlainSoftmax(heads_of(x[0]), heads_of(x[1]), heads_of(x[2]),
                               /*causal=*/false)
               .transpose(1, 2)
               .flatten(2);
         }});
    const at::Tensor angles =
        at::arange(s.rows * n / 2, at::TensorOptions(device).dtype(at::kFloat))
            .view({s.rows, n / 2})
            .mul(1e-3);
    problems.push_back({"rotary, heads of " + std::to_string(n),
                        {q},
                        {},
                        [=](const Tensors& x, const Weights&) {
                          return ops::Rotate(x[0], angles.cos(), angles.sin());
                        },
                        [=](const Tensors& x, const Tensors&) {
                          const at::Tensor pairs = x[0].unflatten(1, {-1, 2, n / 2}),
                                           a = pairs.select(2, 0), b = pairs.select(2, 1),
                                           c = angles.cos().to(at::kDouble).unsqueeze(1),
                                           d = angles.sin().to(at::kDouble).unsqueeze(1);
                          return at::stack({a * c - b * d, b * c + a * d}, 2).flatten(1);
                        }});
  }
  return problems;
}

std::vector<Problem> VocabularyProblems(const Sizes& s, at::Device device) {
  std::vector<Problem> problems;
  const at::TensorOptions whole = at::TensorOptions(device).dtype(at::kLong);
  ops::Targets targets;
  targets.ids = at::arange(s.trained_rows, whole).mul(7919).remainder(s.vocabulary);
  targets.scale = 1.0 / static_cast<double>(s.trained_rows);
  for (const bool in_backward : {false, true}) {
    problems.push_back({std::string("head and loss") + (in_backward ? ", tied" : ""),
                        {{s.trained_rows, s.hidden}},
                        {{s.vocabulary, s.hidden}},
                        [=](const Tensors& x, const Weights& w) {
                          return ops::LinearCrossEntropy(x[0], targets, *w[0], in_backward);
                        },
                        [=](const Tensors& x, const Tensors& w) {
                          const at::Tensor logs = at::linear(x[0], w[0]).log_softmax(-1);
                          return logs.gather(1, targets.ids.unsqueeze(1)).sum() * -targets.scale;
                        }});
  }
  const at::Tensor ids = at::arange(s.rows, whole).remainder(s.vocabulary / 16);  // some often
  const at::Tensor places = at::arange(s.rows / 2, whole).add(1);
  problems.push_back({"embedding",
                      {{s.rows / 2, s.hidden}},
                      {{s.vocabulary, s.hidden}},
                      [=](const Tensors& x, const Weights& w) {
                        return ops::EmbedAndSplice(ids, x[0], places, *w[0]);
                      },
                      [=](const Tensors& x, const Tensors& w) {
                        return at::embedding(w[0], ids).index_copy(0, places, x[0]);
                      }});
  return problems;
}

void CheckAll(const Sizes& sizes, at::Device device, const char* kernels) {
  std::vector<Problem> problems = RowProblems(sizes);
  for (auto&& more : {LinearProblems(sizes), AttentionProblems(sizes, device),
                      VocabularyProblems(sizes, device)}) {
    problems.insert(problems.end(), more.begin(), more.end());
  }
  for (const Problem& problem : problems) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      // One that fails, such as for want of a kernel, is not to hide the others.
      try {
        Check(problem, dtype, device, kernels);
      } catch (const std::exception& error) {
        const std::string text = error.what();
        FAIL_CHECK(problem.name << " in " << dtype << ": " << text.substr(0, text.find('\n')));
      }
    }
  }
  const at::Tensor values = Random({sizes.vocabulary, sizes.hidden}, device).flatten();
  const int64_t padded = (values.numel() + Shards::kBlock - 1) / Shards::kBlock * Shards::kBlock;
  at::Tensor flat = at::zeros({padded}, values.options());
  flat.narrow(0, 0, values.numel()).copy_(values);
  const std::vector<TreeSum> sums = GpuSquares({{{0, values.numel()}, 0}}).Sums(flat);
  CHECK(sums[0].Total() ==
        Approx(values.to(at::kDouble).square().sum().item<double>()).epsilon(1e-6));
}

// Three steps of AdamW: masters and moments, and the squares of the last gradient.
std::pair<Tensors, double> OptimizerRun(at::ScalarType dtype, at::ScalarType moments,
                                        at::Device device) {
  std::vector<Parameter> parameters(2);
  Weights weights;
  for (Parameter& parameter : parameters) {
    parameter.name = "w" + std::to_string(weights.size());
    parameter.shape = {2048, 1536};
    weights.push_back(&parameter);
  }
  parameters[1].shape = {4096};
  FlatParameters flat(weights, dtype, /*shards=*/1, device);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i]->master.copy_(testing::Normal(weights[i]->shape, static_cast<int>(i)));
  flat.UpdateCompute();
  AdamWOptions options;
  options.moments = moments;
  AdamW adamw(flat, DecayGroups(weights, {1, 0.5}, 0.1), options);
  adamw.TakeMasters();
  for (int step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i]->gradient.copy_(
          testing::Normal(weights[i]->shape, 10 * step + static_cast<int>(i)));
    adamw.Step(1e-2);
  }
  Tensors all;
  for (size_t i = 0; i < weights.size(); ++i) {
    for (const at::Tensor& each : {adamw.Master(i).Get(), adamw.exp_avg(i), adamw.exp_avg_sq(i)})
      all.push_back(each.cpu());
  }
  const int64_t size = weights[0]->numel();
  TreeSum squares;
  if (device.is_cpu()) {
    AddSquares(flat.gradient().const_data_ptr<float>(), size, 0, squares);
  } else {
    squares = GpuSquares({{{0, size}, 0}}).Sums(flat.gradient())[0];
  }
  return {all, squares.Total()};
}

// By own kernels the optimizer has the CPU's bits.
void CheckOptimizer(at::ScalarType dtype, at::ScalarType moments, at::Device device) {
  INFO("AdamW, weights in " << dtype << ", moments in " << moments);
  const auto [expected, squares] = OptimizerRun(dtype, moments, at::kCPU);
  const auto [found, found_squares] = OptimizerRun(dtype, moments, device);
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("tensor " << i);
    CHECK(found[i].equal(expected[i]));
  }
  CHECK(found_squares == squares);
}

struct Gpu {
  std::optional<at::Device> device;
  std::string why_not;
};

// This machine's GPU, opened by the first call. LibTorch keeps for ever what it finds when it is
// first asked for CUDA, which at::manual_seed does too: so every case calls this before all else.
const Gpu& OpenedGpu() {
  static const Gpu gpu = [] {
    Gpu found;
    try {
      found.device = OpenComputeDevice("cuda", MpiEnvironment());
    } catch (const ConfigError& error) {
      found.why_not = error.what();
    }
    return found;
  }();
  return gpu;
}

TEST_CASE("operations of small shapes on the CPU beside fp64", "[device]") {
  OpenedGpu();
  CheckAll(kSmall, at::kCPU, "CPU");
}

TEST_CASE("operations of real shapes on a GPU beside fp64", "[device][gpu]") {
  const Gpu& gpu = OpenedGpu();
  if (!gpu.device) return testing::SkipCase(gpu.why_not);
  const at::Device device = *gpu.device;
  CheckAll(kReal, device, "LibTorch's");
  testing::CheckPackedWeights(2048, 8192, device);
  UseOwnKernels(LoadOwnKernels());  // the program's own from here on
  CheckAll(kReal, device, "own");
  testing::CheckPackedWeights(2048, 8192, device);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const at::ScalarType moments : {at::kFloat, at::kBFloat16})
      CheckOptimizer(dtype, moments, device);
  }
}

TEST_CASE("cuDNN's attention of real shapes on a GPU beside fp64", "[device][gpu]") {
  const Gpu& gpu = OpenedGpu();
  if (!gpu.device) return testing::SkipCase(gpu.why_not);
  const at::Device device = *gpu.device;
  ChooseAttention("cudnn_tiles");
  for (const Problem& problem : AttentionProblems(kReal, device))
    Check(problem, at::kBFloat16, device, "cuDNN's");
  ChooseAttention("flash");
}

}  // namespace
}  // namespace equipoise
