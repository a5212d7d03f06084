#include "models/ops/magnitude.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <memory>

#include "models/ops/record.h"
#include "parallel/packed_weight.h"

namespace equipoise::ops {
namespace {

constexpr int64_t kRows = 1024;  // of W that are made in fp32 at a time

at::Tensor Rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// Sums of squares of the rows of W + scale B A, fp32.
at::Tensor RowSquares(const MagnitudePart& part, double scale) {
  const Parameter& weight = *part.linear.weight;
  const at::Tensor w = weight.packs ? weight.packed->Unpacked(at::kFloat) : weight.value;
  const at::Tensor a = part.a->value.to(at::kFloat), b = part.b->value.to(at::kFloat);
  at::Tensor squares = at::empty({w.size(0)}, a.options());
  for (int64_t begin = 0; begin < w.size(0); begin += kRows) {
    const int64_t count = std::min(kRows, w.size(0) - begin);
    const at::Tensor rows = at::addmm(w.narrow(0, begin, count).to(at::kFloat),
                                      b.narrow(0, begin, count), a, /*beta=*/1, scale);
    squares.narrow(0, begin, count).copy_(rows.square().sum(1));
  }
  return squares;
}

struct MagnitudeNode : SavingNode {
  std::vector<MagnitudePart> parts;
  at::Tensor normal;   // z / norm in the parts' columns [rows, sum of widths]
  at::Tensor factors;  // [n]

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor g = Rows(gradients[0]);
    int64_t column = 0;
    for (const MagnitudePart& part : parts) {
      const int64_t width = part.magnitude->shape[0];
      if (part.magnitude->trainable) {
        const at::Tensor product =
            at::mul(g.narrow(1, part.begin, width), normal.narrow(1, column, width));
        part.magnitude->AddGradient(product.sum(0, /*keepdim=*/false, at::kFloat));
      }
      column += width;
    }
    return {at::mul(gradients[0], factors)};
  }
  void ForEachSaved(const Visit& visit) override { visit(normal); }
  std::string name() const override { return "Magnitudes(" + parts[0].magnitude->name + ")"; }
};

}  // namespace

at::Tensor Magnitudes(const at::Tensor& z, const std::vector<MagnitudePart>& parts, double scale,
                      Communicator* group) {
  bool needs_node = NeedsGradient(z);
  for (const MagnitudePart& part : parts) {
    needs_node = needs_node || NeedsNode({}, {part.magnitude});
  }
  const BelowAutograd guard;
  const at::Tensor rows = Rows(z);
  at::Tensor factors = at::ones({z.size(-1)}, z.options().dtype(at::kFloat));
  std::vector<at::Tensor> normal;
  for (const MagnitudePart& part : parts) {
    at::Tensor squares = RowSquares(part, scale);
    if (group != nullptr) group->AllReduce(squares, ReduceOp::kSum).WaitOnStream();
    const at::Tensor inverse = squares.rsqrt();
    const int64_t width = part.magnitude->shape[0];
    factors.narrow(0, part.begin, width).copy_(at::mul(part.magnitude->value, inverse));
    if (needs_node) {
      normal.push_back(at::mul(rows.narrow(1, part.begin, width), inverse).to(z.scalar_type()));
    }
  }
  const at::Tensor rounded = factors.to(z.scalar_type());
  at::Tensor y = at::mul(z, rounded);
  if (!needs_node) return y;
  auto node = std::make_shared<MagnitudeNode>();
  node->parts = parts;
  node->normal = at::cat(normal, 1);
  node->factors = rounded;
  Record(y, node, {&z});
  return y;
}

at::Tensor AddBiases(const at::Tensor& z, const std::vector<LinearWeights>& linears) {
  if (linears[0].bias == nullptr) return z;
  std::vector<at::Tensor> biases;
  for (const LinearWeights& linear : linears) biases.push_back(linear.bias->value);
  return z + at::cat(biases);
}

}  // namespace equipoise::ops
