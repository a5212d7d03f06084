#include "models/ops/cross_entropy.h"

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "models/ops/gradient_sums.h"
#include "models/ops/matrix_product.h"
#include "models/ops/record.h"
#include "models/ops/row_padding.h"
#include "models/ops/vocabulary.h"
#include "models/spec/logits_chunk.h"
#include "parallel/kernels/own_operator.h"

// The rows are computed in chunks, and the logits, softmax and gradients of a chunk are freed
// before the next, so that memory does not grow with rows x vocabulary (as in Liger Kernel, arXiv
// 2410.10989). The gradient of x is saved; that of the weight is added to the parameter's at once,
// or saved as one tensor where backward adds it. With the vocabulary split over tensor-parallel
// ranks, maxima, sums of exponentials and the targets' logits are all-reduced (Megatron-LM, arXiv
// 1909.08053, section 3).

namespace equipoise::ops {
namespace {

// The gradients that a pass over the rows computes with the loss.
struct Gradients {
  bool of_x = false, of_weight = false, in_backward = false;
  Communicator* group = nullptr;  // of the ranks that split the vocabulary
  at::Tensor x;                   // [rows, hidden]
  at::Tensor weight;              // saved for backward; undefined where it is added at once
};

struct CrossEntropyNode : torch::autograd::Node {
  Parameter* weight = nullptr;
  at::Tensor x_gradient, weight_gradient;

  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    if (weight_gradient.defined()) AddTo(weight->gradient, weight_gradient);
    return {x_gradient};
  }
  void release_variables() override {
    x_gradient.reset();
    weight_gradient.reset();
  }
  std::string name() const override { return "CrossEntropy(" + weight->name + ")"; }
};

// On a GPU the products of a vocabulary that is no multiple of 16 bytes, such as InternLM2's of
// 92553, take kernels of a sixth of the speed. There all but the last columns are one product,
// these few another, and the rows of logits begin at multiples of 16 bytes.
struct Columns {
  int64_t aligned, rest;
};

int64_t ColumnsOf16Bytes(const at::Tensor& x) { return 16 / x.element_size(); }

Columns ColumnsOf(const at::Tensor& x, int64_t count) {
  const int64_t rest = x.is_cpu() ? 0 : count % ColumnsOf16Bytes(x);
  return {count - rest, rest};
}

// x weight'
at::Tensor LogitsOf(const at::Tensor& x, const at::Tensor& weight) {
  const auto [aligned, rest] = ColumnsOf(x, weight.size(0));
  if (rest == 0) return MatrixProduct(x, weight.t());
  const int64_t stride = aligned + ColumnsOf16Bytes(x);
  const at::Tensor logits = at::empty({x.size(0), stride}, x.options());
  at::Tensor most = logits.narrow(1, 0, aligned), last = logits.narrow(1, aligned, rest);
  MatrixProductInto(most, x, weight.narrow(0, 0, aligned).t());
  MatrixProductInto(last, x, weight.narrow(0, aligned, rest).t());
  return logits.narrow(1, 0, aligned + rest);
}

// g weight
at::Tensor InputGradient(const at::Tensor& g, const at::Tensor& weight) {
  const auto [aligned, rest] = ColumnsOf(g, weight.size(0));
  if (rest == 0) return MatrixProduct(g, weight);
  // The few first: their sum is rounded once more than all of it.
  at::Tensor sum = MatrixProduct(g.narrow(1, aligned, rest), weight.narrow(0, aligned, rest));
  AddMatrixProduct(sum, g.narrow(1, 0, aligned), weight.narrow(0, 0, aligned));
  return sum;
}

void AddWeightGradient(const at::Tensor& g, const at::Tensor& x, Parameter& weight,
                       Gradients& gradients) {
  // The same products and roundings in both: a head on a stage of its own adds at once.
  if (gradients.in_backward && !gradients.weight.defined())
    gradients.weight = at::zeros_like(weight.gradient);
  const at::Tensor& sum = gradients.in_backward ? gradients.weight : weight.gradient;
  const auto [aligned, rest] = ColumnsOf(g, g.size(1));
  AddProduct(sum.narrow(0, 0, aligned), g.narrow(1, 0, aligned), x);
  if (rest > 0) AddProduct(sum.narrow(0, aligned, rest), g.narrow(1, aligned, rest), x);
}

// The softmax of one chunk's rows.
struct Softmax {
  at::Tensor losses;         // [rows] fp64
  at::Tensor probabilities;  // [rows, this rank's vocabulary] fp32; undefined without gradients
  at::Tensor ids;            // [rows, 1], within this rank's vocabulary
  at::Tensor ones;           // [rows, 1]: 0 where another rank holds the target

  // Gradient of the losses with respect to the logits, in the memory of `probabilities`.
  at::Tensor Gradient() const {
    at::Tensor g = probabilities;
    return g.scatter_add_(1, ids, ones.neg());
  }
};

// The softmax over a vocabulary that is not split. Frees the logits early.
Softmax WholeSoftmax(at::Tensor logits, const at::Tensor& ids, bool wants_gradient) {
  Softmax result;
  result.ids = ids.unsqueeze(1);
  at::Tensor log_p = at::_log_softmax(logits, 1, /*half_to_float=*/false);
  logits.reset();
  result.losses = log_p.gather(1, result.ids).squeeze(1).to(at::kDouble).neg_();
  if (!wants_gradient) return result;
  result.probabilities = log_p.exp_();
  result.ones = at::ones({ids.size(0), 1}, log_p.options());
  return result;
}

Softmax SplitSoftmax(at::Tensor logits, const LocalIds& ids, Communicator& group) {
  Softmax result;
  result.losses = SoftmaxOverRanks(logits, ids, group);
  result.probabilities = logits;
  result.ids = ids.ids.unsqueeze(1);
  result.ones = ids.elsewhere.logical_not().to(at::kFloat).unsqueeze(1);
  return result;
}

struct Rows {
  int64_t begin, count;
};

// The targets of a chunk's rows.
struct ChunkTargets {
  at::Tensor ids;
  std::optional<at::Tensor> weights;
  double scale;
};

// Of a chunk's rows: the losses [rows] fp64 without weights and scale, and the gradient of the
// weighted and scaled ones with respect to the logits, in their dtype; undefined if it is not
// wanted.
struct LogitsLoss {
  at::Tensor losses, gradient;
};

LogitsLoss LossByLibTorch(at::Tensor logits, const ChunkTargets& targets, const Parameter& weight,
                          Communicator* group, bool wants_gradient) {
  const at::ScalarType dtype = logits.scalar_type();
  logits = logits.to(at::kFloat);
  const Softmax softmax =
      group == nullptr ? WholeSoftmax(std::move(logits), targets.ids, wants_gradient)
                       : SplitSoftmax(std::move(logits), IdsOfPart(targets.ids, weight), *group);
  if (!wants_gradient) return {softmax.losses, {}};
  at::Tensor g = softmax.Gradient();
  if (targets.weights) {
    g.mul_(targets.weights->mul(targets.scale).unsqueeze(1));
  } else {
    g.mul_(targets.scale);
  }
  return {softmax.losses, PadRows(g, dtype)};
}

using OwnStatistics = OwnOperator<at::Tensor(const at::Tensor& logits, const at::Tensor& ids)>;
using OwnGradient =
    OwnOperator<void(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& statistics,
                     const std::optional<at::Tensor>& weights, double scale)>;

const OwnStatistics& StatisticsOfRows() {
  static const OwnStatistics own("equipoise::softmax_statistics");
  return own;
}

// The same by the program's own kernels: the logits are read once for the loss, and once more for
// the gradient, which takes their place. No fp32 copy of them is made.
LogitsLoss LossByOwnKernels(at::Tensor logits, const ChunkTargets& targets, const Parameter& weight,
                            Communicator* group, bool wants_gradient) {
  static const OwnGradient gradient("equipoise::cross_entropy_gradient_");
  const at::Tensor ids = group == nullptr ? targets.ids : targets.ids.sub(weight.part.begin);
  const at::Tensor statistics = StatisticsOfRows()(logits, ids);
  at::Tensor largest = statistics[0], total = statistics[1], sums = statistics.narrow(0, 1, 2);
  if (group != nullptr) {
    at::Tensor of_all = largest.clone();
    group->AllReduce(of_all, ReduceOp::kMax).WaitOnStream();
    total.mul_(largest.sub(of_all).exp_());
    largest.copy_(of_all);
    group->AllReduce(sums, ReduceOp::kSum).WaitOnStream();
  }
  const at::Tensor losses = total.to(at::kDouble).log_().add_(largest).sub_(statistics[2]);
  if (!wants_gradient) return {losses, {}};
  gradient(logits, ids, statistics, targets.weights, targets.scale);
  return {losses, std::move(logits)};
}

// Returns the weighted loss of the rows of `chunk`, fp64, without the scale.
at::Tensor Chunk(const at::Tensor& x, const Targets& targets, Parameter& weight,
                 Gradients& gradients, const Rows& chunk) {
  const int64_t begin = chunk.begin, rows = chunk.count;
  const at::Tensor part = PadRows(x.narrow(0, begin, rows), x.scalar_type());
  ChunkTargets own = {targets.ids.narrow(0, begin, rows), std::nullopt, targets.scale};
  if (targets.weights.defined()) own.weights = targets.weights.narrow(0, begin, rows);
  const bool wants_gradient = gradients.of_x || gradients.of_weight;
  at::Tensor logits = LogitsOf(part, weight.value).narrow(0, 0, rows);
  const auto compute = StatisticsOfRows().IsFor(logits) ? LossByOwnKernels : LossByLibTorch;
  LogitsLoss loss = compute(std::move(logits), own, weight, gradients.group, wants_gradient);
  if (own.weights) loss.losses.mul_(*own.weights);
  if (wants_gradient) {
    if (gradients.of_x) {
      gradients.x.narrow(0, begin, rows)
          .copy_(InputGradient(loss.gradient, weight.value).narrow(0, 0, rows));
    }
    if (gradients.of_weight) AddWeightGradient(loss.gradient, part, weight, gradients);
  }
  return loss.losses.sum();
}

}  // namespace

at::Tensor LinearCrossEntropy(const at::Tensor& x, const Targets& targets, Parameter& weight,
                              bool in_backward, Communicator* group) {
  const bool needs_node = NeedsNode({&x}, {&weight});
  Gradients gradients;
  gradients.of_x = NeedsGradient(x);
  gradients.of_weight = needs_node && weight.trainable;
  gradients.in_backward = in_backward;
  gradients.group = group;
  const BelowAutograd guard;
  if (gradients.of_x) gradients.x = at::empty_like(x);

  const int64_t rows = x.size(0);
  // Equal on all ranks, though their shares of the vocabulary differ.
  const int64_t columns = weight.whole_shape()[0] / (group == nullptr ? 1 : group->size());
  const int64_t step = LogitsChunkRows(columns, /*gpu=*/!x.is_cpu());
  at::Tensor loss = at::scalar_tensor(0.0, x.options().dtype(at::kDouble));
  for (int64_t begin = 0; begin < rows; begin += step) {
    loss.add_(Chunk(x, targets, weight, gradients, {begin, std::min(step, rows - begin)}));
  }
  loss.mul_(targets.scale);
  if (gradients.of_x && group != nullptr)
    group->AllReduce(gradients.x, ReduceOp::kSum).WaitOnStream();
  if (!needs_node) return loss;

  auto node = std::make_shared<CrossEntropyNode>();
  node->weight = &weight;
  node->x_gradient = gradients.x;
  node->weight_gradient = gradients.weight;
  Record(loss, node, {&x});
  return loss;
}

}  // namespace equipoise::ops
