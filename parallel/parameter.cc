#include "parallel/parameter.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "configs/base/error.h"
#include "parallel/shards.h"
#include "parallel/split_master.h"

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
  EQUIPOISE_CHECK(compute_dtype == at::kFloat || compute_dtype == at::kBFloat16, compute_dtype);
  const at::TensorOptions fp32 = at::TensorOptions(device).dtype(at::kFloat);
  gradient_ = at::zeros({trained}, fp32);
  compute_ = at::zeros({size}, fp32.dtype(compute_dtype));
  master_ = master_aliases_gradient() ? gradient_ : compute_.narrow(0, 0, trained);

  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    parameter.value = ViewOf(compute_, offsets[i], parameter);
    parameter.master = parameter.gradient = at::Tensor();
    if (!parameter.trainable) continue;
    parameter.gradient = ViewOf(gradient_, offsets[i], parameter);
    parameter.master = ViewOf(master_, offsets[i], parameter);
  }
}

void FlatParameters::ZeroGradient() {
  DropMasters();
  gradient_.zero_();
}

void FlatParameters::UpdateCompute() {
  EQUIPOISE_CHECK(master_.defined(), "the masters were dropped");
  if (!master_aliases_gradient()) return;
  RoundMaster(master_, compute_.narrow(0, 0, master_.numel()));
}

void FlatParameters::DropMasters() {
  if (!master_aliases_gradient() || !master_.defined()) return;
  for (Parameter* parameter : parameters_) parameter->master = at::Tensor();
  master_ = at::Tensor();
  gradient_.zero_();
}

}  // namespace equipoise
