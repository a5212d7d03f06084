#include "models/stages/weight_versions.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "configs/base/error.h"

namespace equipoise {

WeightVersions::WeightVersions(FlatParameters& parameters) : parameters_(parameters) {
  EQUIPOISE_CHECK(!parameters.sharding().gradients(), "gradients are shared out");
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    Parameter* const p = parameters.parameters()[i];
    if (p->trainable)
      views_.push_back({p, parameters.gradient_offset(i), p->value, p->gradient, {}, {}});
  }
}

at::Tensor WeightVersions::ViewOf(const at::Tensor& flat, const Views& of) const {
  return flat.narrow(0, of.offset, of.parameter->numel()).view(of.parameter->shape);
}

at::Tensor WeightVersions::PreviousOf(size_t index) const {
  const Parameter& parameter = *parameters_.parameters()[index];
  return previous_.narrow(0, parameters_.gradient_offset(index), parameter.numel())
      .view(parameter.shape);
}

void WeightVersions::CopyNewest() {
  const at::Tensor newest = parameters_.compute().narrow(0, 0, parameters_.trained_numel());
  if (!previous_.defined()) {
    previous_ = at::empty(newest.sizes(), newest.options());
    for (Views& views : views_) views.previous = ViewOf(previous_, views);
  }
  previous_.copy_(newest);
}

void WeightVersions::BeginStep(bool makes_next) {
  if (!previous_.defined()) CopyNewest();
  if (next_gradient_.defined()) {
    parameters_.gradient().copy_(next_gradient_);
    next_gradient_.zero_();
  } else if (makes_next) {
    next_gradient_ = at::zeros_like(parameters_.gradient());
    for (Views& views : views_) views.next_gradient = ViewOf(next_gradient_, views);
  }
}

void WeightVersions::EndStep() {
  ShowNewest();
  CopyNewest();
}

void WeightVersions::Drop() {
  if (next_gradient_.defined()) next_gradient_.zero_();
}

void WeightVersions::Show(Shown what) {
  if (what == shown_) return;
  shown_ = what;
  for (const Views& views : views_) {
    views.parameter->value = what == kThisStep ? views.previous : views.newest;
    views.parameter->gradient =
        what == kNextStep && views.next_gradient.defined() ? views.next_gradient : views.gradient;
  }
}

}  // namespace equipoise
