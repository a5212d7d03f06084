#include "tests/models/check_op.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/models/model_support.h"

namespace equipoise::testing {

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

void Check(const Problem& problem, bool adjacent) {
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

}  // namespace equipoise::testing
