#include "models/ops/linear.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "models/ops/fp8_product.h"
#include "models/ops/gradient_sums.h"
#include "models/ops/matrix_product.h"
#include "models/ops/record.h"
#include "models/ops/row_padding.h"
#include "parallel/packed_weight.h"

// y = x W' + b. The backward has two independent halves: the input's gradient is computed at once,
// the weights' at once too or, while Parameter::deferred is set, by a closure that runs later (B
// and W of zero bubble, arXiv 2401.10241), or while the input's gradient is summed over tensor
// ranks (BesideSum). Where a weight says so (Parameter::fp8), forward and the input's gradient are
// products in fp8; weights' gradients never are, as they are sums over all rows. Weights are read
// when backward runs; only x is saved, or the node that makes it again, which it does at once:
// later the weights of that node may be gone (ZeRO 3).

namespace equipoise::ops {
namespace {

// A weight as [out, in].
at::Tensor Matrix(const at::Tensor& weight) {
  return weight.dim() == 2 ? weight : weight.view({weight.size(0), -1});
}

// A view of the tensors concatenated along dimension 0 where they are adjacent in memory; else
// undefined.
at::Tensor Adjacent(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1) return tensors[0];
  int64_t rows = 0;
  const at::Tensor& first = tensors[0];
  int64_t next = first.storage_offset();
  for (const at::Tensor& t : tensors) {
    if (!t.is_contiguous() || !t.is_alias_of(first) || t.storage_offset() != next) return {};
    next += t.numel();
    rows += t.size(0);
  }
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[0] = rows;
  return first.as_strided(sizes, first.strides());
}

using Parts = std::vector<LinearWeights>;

// The weights' values as one matrix, where they are neighbours in memory; undefined elsewhere.
at::Tensor JoinedWeights(const Parts& parts) {
  std::vector<at::Tensor> values;
  for (const LinearWeights& part : parts) {
    if (part.weight->packs) return {};
    values.push_back(Matrix(part.weight->value));
  }
  return Adjacent(values);
}

// A weight's values; of one that is packed a copy, to be dropped after its product.
at::Tensor ValuesOf(const Parameter& weight, at::ScalarType dtype) {
  return weight.packs ? weight.packed->Unpacked(dtype) : Matrix(weight.value);
}

at::Tensor JoinedBias(const Parts& parts) {
  if (parts[0].bias == nullptr) return {};
  std::vector<at::Tensor> values;
  for (const LinearWeights& part : parts) values.push_back(part.bias->value);
  at::Tensor joined = Adjacent(values);
  return joined.defined() ? joined : at::cat(values);
}

bool IsFp8(const Parts& parts) {
  return std::ranges::all_of(parts, [](const LinearWeights& part) { return part.weight->fp8; });
}

// x weight' + bias
at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   bool fp8) {
  if (fp8) return Fp8Product(x, weight, bias);
  return bias.defined() ? MatrixProductPlus(bias, x, weight.t()) : MatrixProduct(x, weight.t());
}

// g weight
at::Tensor ProductBack(const at::Tensor& g, const at::Tensor& weight, bool fp8) {
  return fp8 ? Fp8Product(g, weight.t(), {}) : MatrixProduct(g, weight);
}

// x [rows, in] -> [rows, sum of out]
at::Tensor Forward(const at::Tensor& x, const Parts& parts) {
  const at::Tensor bias = JoinedBias(parts);
  const bool fp8 = IsFp8(parts);
  if (const at::Tensor joined = JoinedWeights(parts); joined.defined())
    return Product(x, joined, bias, fp8);
  std::vector<at::Tensor> results;
  int64_t begin = 0;
  for (const LinearWeights& part : parts) {
    const at::Tensor weight = ValuesOf(*part.weight, x.scalar_type());
    const int64_t out = weight.size(0);
    results.push_back(Product(x, weight, bias.defined() ? bias.narrow(0, begin, out) : bias, fp8));
    begin += out;
  }
  return results.size() == 1 ? results[0] : at::cat(results, 1);
}

// g [rows, sum of out] -> [rows, in]
at::Tensor InputGradient(const at::Tensor& g, const Parts& parts) {
  const bool fp8 = IsFp8(parts);
  if (const at::Tensor joined = JoinedWeights(parts); joined.defined())
    return ProductBack(g, joined, fp8);
  at::Tensor sum;
  int64_t begin = 0;
  for (const LinearWeights& part : parts) {
    const at::Tensor weight = ValuesOf(*part.weight, g.scalar_type());
    const at::Tensor columns = g.narrow(1, begin, weight.size(0));
    if (sum.defined()) {
      if (fp8) {
        sum.add_(ProductBack(columns, weight, fp8));
      } else {
        AddMatrixProduct(sum, columns, weight);
      }
    } else {
      sum = ProductBack(columns, weight, fp8);
    }
    begin += weight.size(0);
  }
  return sum;
}

void AddWeightGradients(const at::Tensor& g, const at::Tensor& x, const Parts& parts) {
  std::vector<at::Tensor> gradients;
  for (const LinearWeights& part : parts) gradients.push_back(Matrix(part.weight->gradient));
  if (const at::Tensor joined = Adjacent(gradients); joined.defined()) {
    AddProduct(joined, g, x);
    return;
  }
  int64_t begin = 0;
  for (const at::Tensor& gradient : gradients) {
    AddProduct(gradient, g.narrow(1, begin, gradient.size(0)), x);
    begin += gradient.size(0);
  }
}

void AddBiasGradients(const at::Tensor& g, const Parts& parts) {
  const at::Tensor sum = SumOfRows(g);
  int64_t begin = 0;
  for (const LinearWeights& part : parts) {
    const int64_t out = part.bias->shape[0];
    if (part.bias->trainable) part.bias->AddGradient(sum.narrow(0, begin, out));
    begin += out;
  }
}

struct LinearNode : SavingNode {
  Parts parts;
  // [padded rows, in]; undefined when the weights are frozen, with `kept`, or with `maker`.
  at::Tensor x;
  std::shared_ptr<SharedInput> kept;
  std::shared_ptr<ElementwiseNode> maker;  // of x, in its place
  BesideSum beside;
  std::vector<int64_t> input_shape;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor rows = gradients[0].reshape({-1, gradients[0].size(-1)});
    const at::Tensor g = PadRows(rows, rows.scalar_type());
    if (kept) kept->Restore();
    const bool passes_on = task_should_compute_output(0);
    DeferredGradients* later = parts[0].weight->deferred;
    if (later == nullptr && passes_on && beside != nullptr) {
      later = beside.get();
      if (kept) kept->Start();  // beside the product below
    }
    AddGradients(g, rows.size(0), later);
    if (!passes_on) return {at::Tensor()};
    return {InputGradient(g, parts).narrow(0, 0, rows.size(0)).view(input_shape)};
  }
  void ForEachSaved(const Visit& visit) override {
    visit(x);
    if (kept) visit(kept->part());
  }
  void release_variables() override {
    x.reset();
    kept.reset();  // others share it
    maker.reset();
  }
  std::string name() const override { return "Linear(" + parts[0].weight->name + ")"; }

 private:
  // The gradients of weights and biases, for the gradient g [padded rows, sum of out]: now, or
  // `later`.
  void AddGradients(const at::Tensor& g, int64_t num_rows, DeferredGradients* later) const {
    const Parameter* bias = parts[0].bias;
    if (!x.defined() && !kept && !maker && (bias == nullptr || !bias->trainable)) return;
    at::Tensor input = x;
    if (maker) {
      const at::Tensor again = maker->ResultAgain();
      input = PadRows(again.reshape({-1, again.size(-1)}), again.scalar_type());
    }
    const auto add = [g, num_rows, input, kept = kept, parts = parts] {
      const Parameter* bias = parts[0].bias;
      if (bias && bias->trainable) AddBiasGradients(g.narrow(0, 0, num_rows), parts);
      if (input.defined()) AddWeightGradients(g, input, parts);
      if (kept) AddWeightGradients(g, PadRows(kept->Take(), g.scalar_type()), parts);
    };
    if (later == nullptr) return add();
    later->emplace_back(add);
  }
};

}  // namespace

at::Tensor FusedLinear(const at::Tensor& x, const Parts& parts,
                       const std::shared_ptr<SharedInput>& kept, const BesideSum& beside) {
  for (const LinearWeights& part : parts) {
    EQUIPOISE_CHECK(part.weight->trainable == parts[0].weight->trainable, part.weight->name);
    EQUIPOISE_CHECK((part.bias == nullptr) == (parts[0].bias == nullptr), part.weight->name);
  }
  const bool needs_node = NeedsNode({&x}, {parts[0].weight, parts[0].bias});
  const BelowAutograd guard;
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::Tensor padded = PadRows(rows, rows.scalar_type());
  std::vector<int64_t> output_shape = x.sizes().vec();
  const at::Tensor result = Forward(padded, parts).narrow(0, 0, rows.size(0));
  output_shape.back() = result.size(1);
  at::Tensor y = result.view(output_shape);
  if (!needs_node) return y;

  auto node = std::make_shared<LinearNode>();
  node->parts = parts;
  node->beside = beside;
  node->input_shape = x.sizes().vec();
  if (parts[0].weight->trainable && kept) {
    node->kept = kept;
    kept->WillTake();
  } else if (parts[0].weight->trainable) {
    node->maker = KeptInPlaceOf(x);
    if (node->maker == nullptr) node->x = padded;
  }
  Record(y, node, {&x});
  return y;
}

at::Tensor Linear(const at::Tensor& x, Parameter& weight, Parameter* bias) {
  return FusedLinear(x, {{&weight, bias}});
}

}  // namespace equipoise::ops
