// On a GPU a step is one launch of a kernel of the program's own (parallel/zero/kernels), where it
// is loaded: weights, remainders, gradients and moments are read and written once.
//
// In fp16 the masters are in a buffer of their own, and a copy rounds them into the weights.
//
// Elsewhere the shard of the flat buffers is cut into regions. Of each, the fp32 numbers are made
// from what is kept of them, each group's runs go to ATen's fused AdamW in one call, and the
// results are rounded and split again. What is not kept in fp32 is thus never in memory as fp32 but
// for a region. Every element is updated by the same operations whichever rank holds it and however
// the buffer is cut, because slices and regions begin at multiples of Shards::kBlock: sharding
// changes no bit.

#include "parallel/zero/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "parallel/kernels/own_operator.h"
#include "parallel/split_master.h"
#include "parallel/zero/kernels/adamw_rows.h"

namespace equipoise {
namespace {

// Elements of a region: what stays in a CPU's caches; enough to fill a GPU for long.
constexpr int64_t kCpuRegion = 1 << 16, kDeviceRegion = 1 << 26;
static_assert(kCpuRegion % Shards::kBlock == 0);
constexpr double kLargest = 3.3e38;  // finite in bf16 too

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
    : AdamW(parameters, std::move(groups), options, Shards(parameters.trained_numel()), 0) {}

AdamW::AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
             const AdamWOptions& options, const Shards& shards, int rank)
    : parameters_(parameters),
      groups_(std::move(groups)),
      options_(options),
      shards_(shards),
      rank_(rank) {
  EQUIPOISE_CHECK(shards.numel() == parameters.trained_numel(), shards.numel(), " elements");
  std::vector<int> seen(parameters.parameters().size());
  for (const ParameterGroup& group : groups_) {
    for (const size_t index : group.indices) ++seen.at(index);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    const Parameter& parameter = *parameters.parameters()[i];
    EQUIPOISE_CHECK(seen[i] == (parameter.trainable ? 1 : 0), parameter.name, " is in ", seen[i],
                    " groups");
  }
  MakeRegions();
}

void AdamW::MakeRegions() {
  const int64_t most = parameters_.gradient().is_cpu() ? kCpuRegion : kDeviceRegion;
  for (size_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
    const Range slice = shards_.Slice(bucket, rank_);
    for (int64_t begin = slice.begin; begin < slice.end; begin += most) {
      regions_.push_back({{rank_,
                           {begin, std::min(begin + most, slice.end)},
                           shards_.ShardOffset(bucket) + begin - slice.begin},
                          std::vector<std::vector<Range>>(groups_.size())});
    }
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (const size_t index : groups_[group].indices) {
      for (const Shards::Run& run : shards_.RunsIn(Whole(index), rank_)) AddRuns(run, group);
    }
  }
}

// The parts of a run in each region that it touches.
void AdamW::AddRuns(const Shards::Run& run, size_t group) {
  const Range wanted = run.flat;
  auto region = std::partition_point(regions_.begin(), regions_.end(), [&](const Region& each) {
    return each.place.flat.end <= wanted.begin;
  });
  for (; region != regions_.end() && region->place.flat.begin < wanted.end; ++region) {
    const int64_t origin = region->place.flat.begin;
    region->runs[group].push_back({std::max(wanted.begin, origin) - origin,
                                   std::min(wanted.end, region->place.flat.end) - origin});
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

at::Tensor AdamW::JoinedMaster(size_t index) const {
  const std::vector<Shards::Run> runs = shards_.RunsIn(Whole(index), rank_);
  std::vector<at::Tensor> parts;
  for (const Shards::Run& run : runs) {
    const int64_t size = run.flat.size();
    const at::Tensor values = parameters_.ValueOf(run);
    if (!remainders_.defined()) {
      parts.push_back(masters_.defined() ? masters_.narrow(0, run.local, size) : values);
      continue;
    }
    parts.push_back(at::empty({size}, parameters_.gradient().options()));
    JoinMaster(values, remainders_.narrow(0, run.local, size), parts.back());
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

LazyTensor AdamW::Master(size_t index) const {
  int64_t size = 0;
  for (const Range& run : Runs(index)) size += run.size();
  const std::vector<int64_t> sizes =
      shards_.ranks() == 1 ? parameters_.parameters()[index]->shape : std::vector<int64_t>{size};
  return {sizes, at::kFloat, [this, index, sizes] { return JoinedMaster(index).view(sizes); }};
}

void AdamW::TakeMasters() {
  const at::TensorOptions fp32 = parameters_.gradient().options();
  if (parameters_.master_aliases_gradient()) {
    const bool whole = parameters_.compute().scalar_type() == at::kHalf;
    const at::Tensor kept =
        at::zeros({shards_.shard_numel()}, fp32.dtype(whole ? at::kFloat : at::kShort));
    (whole ? masters_ : remainders_) = kept;
    for (const Region& region : regions_) {
      const Shards::Run& place = region.place;
      const at::Tensor masters = parameters_.GradientOf(place);
      const at::Tensor part = kept.narrow(0, place.local, place.flat.size());
      if (whole) {
        part.copy_(masters);
        RoundMaster(masters, parameters_.ValueOf(place));
      } else {
        SplitMaster(masters, parameters_.ValueOf(place), part);
      }
    }
    parameters_.DropMasters();
  }
  exp_avg_ = at::zeros({shards_.shard_numel()}, fp32.dtype(options_.moments));
  exp_avg_sq_ = at::zeros_like(exp_avg_);
}

AdamW::State AdamW::Load(const Region& region) const {
  const Shards::Run& place = region.place;
  const int64_t size = place.flat.size();
  const auto fp32 = [&](const at::Tensor& shard) {
    return shard.narrow(0, place.local, size).to(at::kFloat);  // a view where it is fp32
  };
  State state{parameters_.ValueOf(place), parameters_.GradientOf(place), fp32(exp_avg_),
              fp32(exp_avg_sq_)};
  if (masters_.defined()) state.masters = masters_.narrow(0, place.local, size);
  if (remainders_.defined()) {
    const at::Tensor values = state.masters;
    state.masters = at::empty({size}, parameters_.gradient().options());
    JoinMaster(values, remainders_.narrow(0, place.local, size), state.masters);
  }
  return state;
}

void AdamW::Store(const Region& region, const State& state) {
  const Shards::Run& place = region.place;
  const int64_t size = place.flat.size();
  if (remainders_.defined()) {
    SplitMaster(state.masters, parameters_.ValueOf(place),
                remainders_.narrow(0, place.local, size));
  }
  if (masters_.defined()) RoundMaster(state.masters, parameters_.ValueOf(place));
  if (options_.moments == at::kFloat) return;
  exp_avg_.narrow(0, place.local, size).copy_(state.averages);
  exp_avg_sq_.narrow(0, place.local, size).copy_(state.squares);
}

void AdamW::Update(const Region& region, State& state, double lr, int64_t step) const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (region.runs[i].empty()) continue;
    const auto runs_of = [&](const at::Tensor& all) {
      std::vector<at::Tensor> runs;
      for (const Range& run : region.runs[i]) runs.push_back(all.narrow(0, run.begin, run.size()));
      return runs;
    };
    std::vector<at::Tensor> masters = runs_of(state.masters), averages = runs_of(state.averages),
                            squares = runs_of(state.squares);
    const std::vector<at::Tensor> step_of_each(
        masters.size(), at::full({}, static_cast<double>(step), state.masters.options()));
    at::_fused_adamw_(masters, runs_of(state.gradients), averages, squares,
                      /*max_exp_avg_sqs=*/{}, step_of_each, lr * groups_[i].lr_factor,
                      options_.beta1, options_.beta2, groups_[i].weight_decay, options_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
}

using OwnAdamW = OwnOperator<void(
    const at::Tensor& chunks, const at::Tensor& weight, const std::optional<at::Tensor>& remainder,
    const at::Tensor& gradient, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
    c10::ArrayRef<double> lr, c10::ArrayRef<double> weight_decay, c10::ArrayRef<double> betas,
    double eps, int64_t step)>;

// The chunks of all groups, on the device.
at::Tensor AdamW::MakeChunks() const {
  constexpr int64_t kSize = 8192;  // elements of a chunk: 8 for each thread of a team, 4 times
  std::vector<kernels::AdamWChunk> chunks;
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (const size_t index : groups_[group].indices) {
      for (const Shards::Run& run : shards_.RunsIn(Whole(index), rank_)) {
        for (int64_t i = 0; i < run.flat.size(); i += kSize) {
          const int64_t master = masters_.defined() ? run.local : parameters_.ValueAt(run);
          chunks.push_back({master + i, parameters_.GradientAt(run) + i, run.local + i,
                            std::min(kSize, run.flat.size() - i), static_cast<int64_t>(group)});
        }
      }
    }
  }
  constexpr auto kNumbers = static_cast<int64_t>(sizeof chunks[0] / sizeof(int64_t));
  return at::from_blob(chunks.data(), {static_cast<int64_t>(chunks.size()), kNumbers}, at::kLong)
      .to(parameters_.gradient().device(), at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

// Step() by the program's own kernel. Returns false, and does nothing, where there is none.
bool AdamW::StepByOwnKernel(double lr) {
  static const OwnAdamW own("equipoise::adamw_");
  const at::Tensor& gradient = parameters_.gradient();
  constexpr auto kMostGroups = static_cast<size_t>(kernels::AdamWRow<float, float>::kMostGroups);
  if (!own.IsFor(gradient) || groups_.size() > kMostGroups) return false;
  if (!chunks_.defined()) chunks_ = MakeChunks();
  std::vector<double> lrs, decays;
  for (const ParameterGroup& group : groups_) {
    lrs.push_back(lr * group.lr_factor);
    decays.push_back(group.weight_decay);
  }
  const std::optional<at::Tensor> remainders =
      remainders_.defined() ? std::optional(remainders_) : std::nullopt;
  own(chunks_, masters_.defined() ? masters_ : parameters_.compute(), remainders, gradient,
      exp_avg_, exp_avg_sq_, lrs, decays, std::array{options_.beta1, options_.beta2}, options_.eps,
      steps_);
  for (const Region& region : regions_) {
    if (!masters_.defined()) break;
    const Shards::Run& place = region.place;
    RoundMaster(masters_.narrow(0, place.local, place.flat.size()), parameters_.ValueOf(place));
  }
  return true;
}

void AdamW::Step(double lr) {
  ++steps_;
  if (StepByOwnKernel(lr)) return;
  for (const Region& region : regions_) {
    State state = Load(region);
    Update(region, state, lr, steps_);
    Store(region, state);
  }
}

bool AdamW::StepIsFinite(double lr) const {
  for (const Region& region : regions_) {
    const State now = Load(region);
    State after{now.masters.clone(), now.gradients, now.averages.clone(), now.squares.clone()};
    Update(region, after, lr, steps_ + 1);
    for (const at::Tensor& values : {after.masters, after.averages, after.squares}) {
      if (!(Magnitude(values) <= kLargest)) return false;
    }
  }
  return true;
}

StepBound AdamW::Largest() const {
  StepBound bound;
  for (const Region& region : regions_) {
    const State state = Load(region);
    bound.weight = std::max(bound.weight, Magnitude(state.masters));
    bound.average = std::max(bound.average, Magnitude(state.averages));
    bound.square = std::max(bound.square, Magnitude(state.squares));
  }
  return bound;
}

void AdamW::ScaleGradients(double factor) {
  if (parameters_.sharding().gradients()) {
    parameters_.gradient().mul_(factor);
    return;
  }
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
