#include "parallel/parameter.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "configs/error.h"
#include "parallel/shards.h"

namespace equipoise {
namespace {

int64_t Aligned(int64_t numel) {
  return (numel + Shards::kBlock - 1) / Shards::kBlock * Shards::kBlock;
}

at::Tensor ViewOf(const at::Tensor& buffer, int64_t offset, const Parameter& parameter) {
  return buffer.narrow(0, offset, parameter.numel()).view(parameter.shape);
}

}  // namespace

void Parameter::AddGradient(const at::Tensor& d) {
  EQUIPOISE_CHECK(trainable && gradient.defined(), name, " has no gradient");
  gradient.add_(d.view(shape));
}

FlatParameters::FlatParameters(std::vector<Parameter*> parameters, at::ScalarType compute_dtype,
                               int shards, at::Device device)
    : parameters_(std::move(parameters)) {
  int64_t trained = 0;
  for (const Parameter* parameter : parameters_) {
    gradient_offsets_.push_back(parameter->trainable ? trained : -1);
    if (parameter->trainable) trained += Aligned(parameter->numel());
  }
  trained = Shards::Padded(trained, shards);
  std::vector<int64_t> offsets = gradient_offsets_;
  int64_t size = trained;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i]->trainable) continue;
    offsets[i] = size;
    size += Aligned(parameters_[i]->numel());
  }
  const bool lends = shards > 1 && compute_dtype != at::kFloat;
  const at::TensorOptions fp32 = at::TensorOptions(device).dtype(at::kFloat);
  gradient_ = at::zeros({trained}, fp32);
  if (lends) {
    lent_frozen_ = at::zeros({size - trained}, fp32);
  } else {
    master_ = at::zeros({size}, fp32);
  }
  compute_ = compute_dtype == at::kFloat ? master_ : at::zeros({size}, fp32.dtype(compute_dtype));

  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    parameter.value = ViewOf(compute_, offsets[i], parameter);
    parameter.gradient =
        parameter.trainable ? ViewOf(gradient_, offsets[i], parameter) : at::Tensor();
    if (!lends) {
      parameter.master = ViewOf(master_, offsets[i], parameter);
    } else if (parameter.trainable) {
      parameter.master = parameter.gradient;
    } else {
      parameter.master = ViewOf(lent_frozen_, offsets[i] - trained, parameter);
    }
  }
}

void FlatParameters::ZeroGradient() { gradient_.zero_(); }

void FlatParameters::UpdateCompute() {
  if (compute_.is_same(master_)) return;
  if (master_.defined()) {
    compute_.copy_(master_);
    return;
  }
  EQUIPOISE_CHECK(lent_frozen_.defined(), "the masters were dropped");
  compute_.narrow(0, 0, gradient_.numel()).copy_(gradient_);
  compute_.narrow(0, gradient_.numel(), lent_frozen_.numel()).copy_(lent_frozen_);
}

void FlatParameters::DropMasters() {
  EQUIPOISE_CHECK(lends_masters(), "the masters are kept");
  for (Parameter* parameter : parameters_) parameter->master = at::Tensor();
  lent_frozen_ = at::Tensor();
  ZeroGradient();
}

}  // namespace equipoise
