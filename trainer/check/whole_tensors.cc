#include "trainer/check/whole_tensors.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace equipoise {
namespace {

// Adds a tensor-parallel rank's slice, without its padding rows.
void AddPart(const Parameter& parameter, const at::Tensor& flat, at::Tensor& whole) {
  const at::Tensor part = flat.view(parameter.shape);
  const TensorPart& place = parameter.part;
  at::Tensor target = whole.view(parameter.whole_shape());
  if (!place.split()) {
    target.add_(part);
    return;
  }
  const int64_t rows = std::min(part.size(place.dim), place.whole - place.begin);
  if (rows > 0) target.narrow(place.dim, place.begin, rows).add_(part.narrow(place.dim, 0, rows));
}

}  // namespace

void AddGradient(ParallelModel& model, size_t index, at::Tensor& whole) {
  const Parameter& parameter = *model.parameters().parameters()[index];
  if (!parameter.part.owner || !parameter.trainable || !model.first_copy()) return;
  const int rank = model.shard();
  const Shards& shards = model.shards();
  const int64_t begin = model.parameters().gradient_offset(index);
  if (shards.ranks() == 1) {
    const at::Tensor& gradients = model.parameters().gradient();
    if (rank == 0) AddPart(parameter, gradients.narrow(0, begin, parameter.numel()).cpu(), whole);
    return;
  }
  at::Tensor local = at::zeros({parameter.numel()}, at::kFloat);
  for (const Shards::Run& run : shards.RunsIn({begin, begin + parameter.numel()}, rank)) {
    local.narrow(0, run.flat.begin - begin, run.flat.size())
        .copy_(model.parameters().GradientOf(run));
  }
  AddPart(parameter, local, whole);
}

void AddState(const ZeroOptimizer::State& state, at::Tensor& whole) {
  const Parameter& parameter = *state.parameter;
  const at::Tensor values = state.values.Get().cpu().reshape({-1});
  at::Tensor local = at::zeros({parameter.numel()}, at::kFloat);
  int64_t done = 0;
  for (const Range& run : state.runs) {
    local.narrow(0, run.begin, run.size()).copy_(values.narrow(0, done, run.size()));
    done += run.size();
  }
  AddPart(parameter, local, whole);
}

}  // namespace equipoise
