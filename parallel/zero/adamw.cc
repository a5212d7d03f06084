// The shard of the flat buffers is a list of runs; each group's runs go to ATen's fused AdamW in
// one call. Every element is updated by the same operations whichever rank holds it and however the
// buffer is cut, because slices begin at multiples of Shards::kBlock: sharding changes no bit.
//
// Masters are in one of three places: in fp32 they are the compute copy; with one shard, a buffer
// of their own; with several shards, the gradient's memory until TakeMasters() copies this rank's
// shard into `masters_`.

#include "parallel/zero/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr int64_t kTriedAtOnce = 1 << 18;  // elements
constexpr double kLargest = 3.3e38;        // finite in bf16 too

// Magnitude of the largest element; infinite where one is NaN.
double Magnitude(const at::Tensor& values) {
  if (values.numel() == 0) return 0;
  const auto [least, most] = at::aminmax(values);
  const double largest = std::max(-least.item<double>(), most.item<double>());
  return std::isnan(least.item<double>()) ? std::numeric_limits<double>::infinity() : largest;
}

}  // namespace

AdamW::AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
             const AdamWOptions& options)
    : AdamW(parameters, std::move(groups), options, Shards(parameters.gradient().numel()), 0) {}

AdamW::AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
             const AdamWOptions& options, const Shards& shards, int rank)
    : parameters_(parameters),
      groups_(std::move(groups)),
      options_(options),
      shards_(shards),
      rank_(rank) {
  EQUIPOISE_CHECK(shards.numel() == parameters.gradient().numel(), shards.numel(), " elements");
  if (!parameters.master_aliases_gradient()) MakeMoments();
  std::vector<int> seen(parameters.parameters().size());
  for (const ParameterGroup& group : groups_) {
    for (const size_t index : group.indices) ++seen.at(index);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    const Parameter& parameter = *parameters.parameters()[i];
    EQUIPOISE_CHECK(seen[i] == (parameter.trainable ? 1 : 0), parameter.name, " is in ", seen[i],
                    " groups");
  }
}

Range AdamW::Whole(size_t index) const {
  const Parameter& parameter = *parameters_.parameters()[index];
  const int64_t offset = parameters_.gradient_offset(index);
  EQUIPOISE_CHECK(offset >= 0, parameter.name, " is frozen");
  return {offset, offset + parameter.numel()};
}

std::vector<Range> AdamW::Runs(size_t index) const {
  const Range whole = Whole(index);
  std::vector<Range> runs;
  for (const Shards::Run& run : shards_.RunsIn(whole, rank_)) {
    runs.push_back({run.flat.begin - whole.begin, run.flat.end - whole.begin});
  }
  return runs;
}

at::Tensor AdamW::View(const at::Tensor& shard, size_t index) const {
  const Range whole = Whole(index);
  const std::vector<Shards::Run> runs = shards_.RunsIn(whole, rank_);
  int64_t count = 0;
  for (const Shards::Run& run : runs) count += run.flat.size();
  const at::Tensor view = shard.narrow(0, runs.empty() ? 0 : runs[0].local, count);
  return shards_.ranks() == 1 ? view.view(parameters_.parameters()[index]->shape) : view;
}

at::Tensor AdamW::Master(size_t index) const {
  if (masters_.defined()) return View(masters_, index);
  const at::Tensor& master = parameters_.parameters()[index]->master;
  if (shards_.ranks() == 1) return master;
  std::vector<at::Tensor> parts;
  for (const Range& run : Runs(index)) {
    parts.push_back(master.view({-1}).narrow(0, run.begin, run.size()));
  }
  if (parts.empty()) return master.view({-1}).narrow(0, 0, 0);
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

at::Tensor AdamW::MasterSlice(size_t bucket) const {
  return masters_.narrow(0, shards_.ShardOffset(bucket), shards_.Slice(bucket, rank_).size());
}

at::Tensor AdamW::ShardOfZeros() const {
  return at::zeros({shards_.shard_numel()}, parameters_.gradient().options());
}

void AdamW::MakeMoments() {
  exp_avg_ = ShardOfZeros();
  exp_avg_sq_ = ShardOfZeros();
}

void AdamW::TakeMasters() {
  if (!parameters_.master_aliases_gradient()) return;
  masters_ = ShardOfZeros();
  for (size_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
    const Range slice = shards_.Slice(bucket, rank_);
    MasterSlice(bucket).copy_(parameters_.gradient().narrow(0, slice.begin, slice.size()));
  }
}

AdamW::GroupRuns AdamW::RunsOf(const ParameterGroup& group) const {
  const at::Tensor& all_masters =
      parameters_.master_aliases_gradient() ? masters_ : parameters_.master();
  GroupRuns runs;
  for (const size_t index : group.indices) {
    for (const Shards::Run& run : shards_.RunsIn(Whole(index), rank_)) {
      const int64_t size = run.flat.size();
      runs.masters.push_back(
          all_masters.narrow(0, masters_.defined() ? run.local : run.flat.begin, size));
      runs.gradients.push_back(parameters_.gradient().narrow(0, run.flat.begin, size));
      runs.averages.push_back(exp_avg_.narrow(0, run.local, size));
      runs.squares.push_back(exp_avg_sq_.narrow(0, run.local, size));
    }
  }
  return runs;
}

void AdamW::Update(GroupRuns& runs, const ParameterGroup& group, double lr, int64_t step) const {
  if (runs.masters.empty()) return;
  const std::vector<at::Tensor> step_of_each(
      runs.masters.size(), at::full({}, static_cast<double>(step), exp_avg_.options()));
  at::_fused_adamw_(runs.masters, runs.gradients, runs.averages, runs.squares,
                    /*max_exp_avg_sqs=*/{}, step_of_each, lr * group.lr_factor, options_.beta1,
                    options_.beta2, group.weight_decay, options_.eps, /*amsgrad=*/false,
                    /*maximize=*/false);
}

void AdamW::Step(double lr) {
  ++steps_;
  for (const ParameterGroup& group : groups_) {
    GroupRuns runs = RunsOf(group);
    Update(runs, group, lr, steps_);
  }
}

bool AdamW::StepIsFinite(double lr) const {
  for (const ParameterGroup& group : groups_) {
    const GroupRuns runs = RunsOf(group);
    for (size_t i = 0; i < runs.masters.size(); ++i) {
      for (int64_t begin = 0; begin < runs.masters[i].numel(); begin += kTriedAtOnce) {
        const int64_t size = std::min(kTriedAtOnce, runs.masters[i].numel() - begin);
        const auto part = [&](const at::Tensor& run) { return run.narrow(0, begin, size); };
        GroupRuns copy{{part(runs.masters[i]).clone()},
                       {part(runs.gradients[i])},
                       {part(runs.averages[i]).clone()},
                       {part(runs.squares[i]).clone()}};
        Update(copy, group, lr, steps_ + 1);
        for (const auto* after : {&copy.masters, &copy.averages, &copy.squares}) {
          if (!(Magnitude(after->front()) <= kLargest)) return false;
        }
      }
    }
  }
  return true;
}

StepBound AdamW::Largest() const {
  StepBound bound;
  for (const ParameterGroup& group : groups_) {
    const GroupRuns runs = RunsOf(group);
    for (size_t i = 0; i < runs.masters.size(); ++i) {
      bound.weight = std::max(bound.weight, Magnitude(runs.masters[i]));
      bound.average = std::max(bound.average, Magnitude(runs.averages[i]));
      bound.square = std::max(bound.square, Magnitude(runs.squares[i]));
    }
  }
  return bound;
}

void AdamW::ScaleGradients(double factor) {
  for (size_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
    const Range slice = shards_.Slice(bucket, rank_);
    parameters_.gradient().narrow(0, slice.begin, slice.size()).mul_(factor);
  }
}

std::vector<ParameterGroup> DecayGroups(const std::vector<Parameter*>& parameters,
                                        const std::vector<double>& lr_factor, double weight_decay) {
  EQUIPOISE_CHECK(parameters.size() == lr_factor.size());
  std::map<std::pair<double, double>, ParameterGroup> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]->trainable) continue;
    const double decay = parameters[i]->shape.size() >= 2 ? weight_decay : 0.0;
    ParameterGroup& group = groups[{lr_factor[i], decay}];
    group.lr_factor = lr_factor[i];
    group.weight_decay = decay;
    group.indices.push_back(i);
  }
  std::vector<ParameterGroup> result;
  result.reserve(groups.size());
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

}  // namespace equipoise
