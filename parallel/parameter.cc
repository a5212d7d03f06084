#include "parallel/parameter.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "configs/error.h"

namespace equipoise {
namespace {

// A cache line of fp32, and what vector loads of every width like.
constexpr int64_t kAlignment = 16;

int64_t Aligned(int64_t numel) { return (numel + kAlignment - 1) / kAlignment * kAlignment; }

at::Tensor ViewOf(const at::Tensor& buffer, int64_t offset, const Parameter& parameter) {
  return buffer.narrow(0, offset, parameter.numel()).view(parameter.shape);
}

}  // namespace

void Parameter::AddGradient(const at::Tensor& d) {
  EQUIPOISE_CHECK(trainable && gradient.defined(), name, " has no gradient");
  gradient.add_(d.view(shape));
}

FlatParameters::FlatParameters(std::vector<Parameter*> parameters, at::ScalarType compute_dtype)
    : parameters_(std::move(parameters)) {
  int64_t size = 0, gradient_size = 0;
  for (const Parameter* parameter : parameters_) {
    size += Aligned(parameter->numel());
    gradient_offsets_.push_back(parameter->trainable ? gradient_size : -1);
    if (parameter->trainable) gradient_size += Aligned(parameter->numel());
  }
  master_ = at::zeros({size}, at::kFloat);
  gradient_ = at::zeros({gradient_size}, at::kFloat);
  compute_ = compute_dtype == at::kFloat ? master_ : at::zeros({size}, compute_dtype);

  int64_t offset = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    parameter.master = ViewOf(master_, offset, parameter);
    parameter.value = ViewOf(compute_, offset, parameter);
    parameter.gradient =
        parameter.trainable ? ViewOf(gradient_, gradient_offsets_[i], parameter) : at::Tensor();
    offset += Aligned(parameter.numel());
  }
}

void FlatParameters::ZeroGradient() { gradient_.zero_(); }

void FlatParameters::UpdateCompute() {
  if (!compute_.is_same(master_)) compute_.copy_(master_);
}

}  // namespace equipoise
