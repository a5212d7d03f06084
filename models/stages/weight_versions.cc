#include "models/stages/weight_versions.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

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

at::Tensor WeightVersions::ViewOf(const at::Tensor& flat, int64_t begin, const Views& of) {
  return flat.narrow(0, of.offset - begin, of.parameter->numel()).view(of.parameter->shape);
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
    for (Views& views : views_) views.previous = ViewOf(previous_, 0, views);
  }
  previous_.copy_(newest);
}

void WeightVersions::BeginStep(const std::vector<const Parameter*>& makes_next) {
  if (!previous_.defined()) CopyNewest();
  for (NextPart& each : next_) {
    parameters_.gradient().narrow(0, each.offset, each.flat.numel()).copy_(each.flat);
    each.flat.zero_();
  }
  const auto lacks = [&](const Views& views) {
    const bool makes =
        std::find(makes_next.begin(), makes_next.end(), views.parameter) != makes_next.end();
    return makes && !views.next_gradient.defined();
  };
  for (size_t first = 0; first < views_.size(); ++first) {
    size_t end = first;
    while (end < views_.size() && lacks(views_[end])) ++end;
    if (end == first) continue;
    AddNextGradients(first, end);
    first = end;
  }
}

// Those of views [first, end), which follow one another in the flat gradient.
void WeightVersions::AddNextGradients(size_t first, size_t end) {
  const Views& last = views_[end - 1];
  const int64_t offset = views_[first].offset;
  const int64_t numel = last.offset + last.parameter->numel() - offset;
  next_.push_back({offset, at::zeros({numel}, parameters_.gradient().options())});
  for (size_t i = first; i < end; ++i)
    views_[i].next_gradient = ViewOf(next_.back().flat, offset, views_[i]);
}

void WeightVersions::EndStep() {
  ShowNewest();
  CopyNewest();
}

void WeightVersions::Drop() {
  for (NextPart& each : next_) each.flat.zero_();
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
