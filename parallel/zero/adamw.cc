// What a rank keeps of AdamW's state, and how a checkpoint sees it; adamw_step.cc has the step.
//
// The shard is cut into regions, which begin at multiples of kFlatAlignment as its slices do, so
// that every element is updated by the same operations whichever rank holds it and however the
// buffer is cut: sharding changes no bit. Masters and moments are taken region by region, so that
// whole ones are never in memory together with the masters that were set.

#include "parallel/zero/adamw.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <utility>

#include "configs/base/error.h"
#include "parallel/device.h"
#include "parallel/flat_alignment.h"
#include "parallel/host_copies.h"
#include "parallel/split_master.h"
#include "parallel/zero/magnitude.h"

namespace equipoise {
namespace {

// Elements of a region: what stays in a CPU's caches; enough to fill a GPU for long; copies between
// the two at their full rate, of which two of gradients are in memory, a power of two in bytes; few
// where codes become fp32 on the way.
constexpr int64_t kCpuRegion = 1 << 16, kDeviceRegion = 1 << 26, kOffloadedRegion = 1 << 22,
                  kDeviceRegionOfCodes = 1 << 24;
static_assert(kCpuRegion % kFlatAlignment == 0 && kFlatAlignment % kernels::kCodeBlock == 0);
constexpr size_t kMostGroups = kernels::AdamWRow<float, float>::kMostGroups;

}  // namespace

AdamW::AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
             const AdamWOptions& options)
    : AdamW(parameters, std::move(groups), options,
            OwnedSlices(Shards(parameters.trained_numel()), 0)) {}

AdamW::AdamW(FlatParameters& parameters, std::vector<ParameterGroup> groups,
             const AdamWOptions& options, OwnedSlices own)
    : parameters_(parameters), groups_(std::move(groups)), options_(options), own_(std::move(own)) {
  EQUIPOISE_CHECK(own_.buffer_numel() == parameters.trained_numel(), own_.buffer_numel());
  EQUIPOISE_CHECK(groups_.size() <= kMostGroups, groups_.size(), " groups");
  EQUIPOISE_CHECK(!without_masters() || parameters.compute().scalar_type() == at::kBFloat16);
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
  const int64_t most = offloaded()                       ? kOffloadedRegion
                       : parameters_.gradient().is_cpu() ? kCpuRegion
                       : options_.moments == at::kByte   ? kDeviceRegionOfCodes
                                                         : kDeviceRegion;
  for (const Shards::Run& run : own_.runs()) {
    for (int64_t begin = run.flat.begin; begin < run.flat.end; begin += most) {
      regions_.push_back({{run.rank,
                           {begin, std::min(begin + most, run.flat.end)},
                           run.local + begin - run.flat.begin},
                          std::vector<std::vector<Part>>(groups_.size()),
                          {},
                          {}});
    }
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (const size_t index : groups_[group].indices) {
      for (const Shards::Run& run : own_.RunsIn(Whole(index))) AddParts(run, group, index);
    }
  }
}

// The parts of a run in each region that it touches.
void AdamW::AddParts(const Shards::Run& run, size_t group, size_t parameter) {
  const Range wanted = run.flat;
  auto region = std::partition_point(regions_.begin(), regions_.end(), [&](const Region& each) {
    return each.place.flat.end <= wanted.begin;
  });
  for (; region != regions_.end() && region->place.flat.begin < wanted.end; ++region) {
    const int64_t origin = region->place.flat.begin;
    region->parts[group].push_back({{std::max(wanted.begin, origin) - origin,
                                     std::min(wanted.end, region->place.flat.end) - origin},
                                    parameter});
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
  for (const Shards::Run& run : own_.RunsIn(whole)) {
    runs.push_back({run.flat.begin - whole.begin, run.flat.end - whole.begin});
  }
  return runs;
}

std::vector<int64_t> AdamW::SizesOf(size_t index) const {
  if (own_.whole()) return parameters_.parameters()[index]->shape;
  int64_t size = 0;
  for (const Range& run : Runs(index)) size += run.size();
  return {size};
}

// Where a parameter's part lies in the shard.
Range AdamW::InShard(size_t index) const {
  const std::vector<Shards::Run> runs = own_.RunsIn(Whole(index));
  if (runs.empty()) return {0, 0};
  return {runs.front().local, runs.back().local + runs.back().flat.size()};
}

at::Tensor AdamW::View(const Moment& moment, size_t index) const {
  const Range part = InShard(index);
  return moment.Saved(part.begin, part.size()).view(SizesOf(index));
}

std::array<LazyTensor, 2> AdamW::Moments(size_t index) const {
  if (!moments_are_codes()) return {exp_avg(index), exp_avg_sq(index)};
  const std::vector<int64_t> sizes = SizesOf(index);
  return {LazyTensor(sizes, at::kFloat, [this, index] { return exp_avg(index); }),
          LazyTensor(sizes, at::kFloat, [this, index] { return exp_avg_sq(index); })};
}

void AdamW::SetMoments(size_t index, const at::Tensor& average, const at::Tensor& square) {
  const std::vector<Shards::Run> runs = own_.RunsIn(Whole(index));
  if (runs.empty()) return;
  exp_avg_.Set(runs[0].local, average.flatten());
  exp_avg_sq_.Set(runs[0].local, square.flatten());
}

at::Tensor AdamW::ValuesOf(const Region& region) const {
  return region.values.defined() ? region.values : parameters_.ValueOf(region.place);
}

at::Tensor AdamW::ValuesOf(const Shards::Run& run) const {
  if (!offloaded()) return parameters_.ValueOf(run);
  std::vector<at::Tensor> parts;
  const Range wanted{run.local, run.local + run.flat.size()};
  for (const Region& region : regions_) {
    const int64_t origin = region.place.local;
    const int64_t begin = std::max(wanted.begin, origin);
    const int64_t end = std::min(wanted.end, origin + region.place.flat.size());
    if (begin < end) parts.push_back(region.values.narrow(0, begin - origin, end - begin));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

at::Tensor AdamW::JoinedMaster(size_t index) const {
  const std::vector<Shards::Run> runs = own_.RunsIn(Whole(index));
  std::vector<at::Tensor> parts;
  for (const Shards::Run& run : runs) {
    const int64_t size = run.flat.size();
    const at::Tensor values = ValuesOf(run);
    if (!remainders_.defined()) {
      parts.push_back(masters_.defined() ? masters_.narrow(0, run.local, size) : values);
      continue;
    }
    parts.push_back(at::empty({size}, values.options().dtype(at::kFloat)));
    JoinMaster(values, remainders_.narrow(0, run.local, size), parts.back());
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

LazyTensor AdamW::Master(size_t index) const {
  const std::vector<int64_t> sizes = SizesOf(index);
  const at::ScalarType dtype = without_masters() ? at::kBFloat16 : at::kFloat;
  return {sizes, dtype, [this, index, sizes] { return JoinedMaster(index).view(sizes); }};
}

template <class Visit>
void AdamW::ForRegions(Range range, const Visit& visit) const {
  for (const Region& region : regions_) {
    const int64_t origin = region.place.local;
    const int64_t begin = std::max(range.begin, origin);
    const int64_t end = std::min(range.end, origin + region.place.flat.size());
    if (begin < end) visit(region, Overlap{begin - origin, begin, end - begin});
  }
}

at::Tensor AdamW::Masters(Range range) const {
  const at::TensorOptions state =
      offloaded() ? at::TensorOptions(at::kCPU) : parameters_.compute().options();
  at::Tensor all = at::empty({range.size()}, state.dtype(at::kFloat));
  ForRegions(range, [&](const Region& region, const Overlap& at) {
    at::Tensor masters = all.narrow(0, at.local - range.begin, at.size);
    if (masters_.defined()) {
      masters.copy_(masters_.narrow(0, at.local, at.size));
      return;
    }
    const at::Tensor values = ValuesOf(region).narrow(0, at.in_region, at.size);
    if (remainders_.defined()) {
      JoinMaster(values, remainders_.narrow(0, at.local, at.size), masters);
    } else {
      masters.copy_(values);
    }
  });
  return all;
}

void AdamW::SetMasters(Range range, const at::Tensor& masters) {
  EQUIPOISE_CHECK(masters.numel() == range.size(), masters.numel(), " masters");
  // What the step before has written may still be on its way to the device.
  if (offloaded()) Synchronize(parameters_.values_device());
  ForRegions(range, [&](const Region& region, const Overlap& at) {
    at::Tensor values = ValuesOf(region).narrow(0, at.in_region, at.size);
    const at::Tensor own = masters.narrow(0, at.local - range.begin, at.size).to(values.device());
    if (masters_.defined()) masters_.narrow(0, at.local, at.size).copy_(own);
    if (remainders_.defined()) {
      SplitMaster(own, values, remainders_.narrow(0, at.local, at.size));
    } else if (values.scalar_type() == at::kFloat) {
      values.copy_(own);
    } else {
      RoundMaster(own, values);
    }
    if (offloaded())
      parameters_.ValueOf(region.place).narrow(0, at.in_region, at.size).copy_(values);
  });
}

at::Tensor AdamW::AsHeld(const at::Tensor& masters) const {
  const at::ScalarType dtype = parameters_.compute().scalar_type();
  if (!without_masters() || dtype == at::kFloat) return masters;
  at::Tensor rounded = at::empty(masters.sizes(), masters.options().dtype(dtype));
  RoundMaster(masters, rounded);
  return rounded.to(at::kFloat);
}

at::Tensor AdamW::PartOf(const at::Tensor& flat, size_t index) const {
  EQUIPOISE_CHECK(flat.numel() == own_.numel(), flat.numel(), " elements of a shard");
  const Range part = InShard(index);
  return flat.narrow(0, part.begin, part.size()).view(SizesOf(index));
}

void AdamW::TakeMasters() {
  const bool apart = parameters_.master_aliases_gradient();
  const bool whole = apart && parameters_.compute().scalar_type() == at::kHalf;
  const at::TensorOptions state =
      offloaded() ? at::TensorOptions(at::kCPU) : parameters_.gradient().options();
  if (apart && !without_masters()) {
    (whole ? masters_ : remainders_) =
        at::zeros({own_.numel()}, state.dtype(whole ? at::kFloat : at::kShort));
  }
  for (Region& region : regions_) {
    const Shards::Run& place = region.place;
    const int64_t size = place.flat.size();
    const at::Tensor values = parameters_.ValueOf(place);
    if (offloaded()) {
      region.values = PinnedMemory(size, values.scalar_type());
      region.values.copy_(values);
    }
    if (!apart) continue;
    const at::Tensor gradient = parameters_.GradientOf(place);
    const at::Tensor masters = offloaded() ? gradient.cpu() : gradient;
    if (whole) {
      masters_.narrow(0, place.local, size).copy_(masters);
      RoundMaster(masters, ValuesOf(region));
    } else if (without_masters()) {
      RoundMaster(masters, ValuesOf(region));
    } else {
      SplitMaster(masters, ValuesOf(region), remainders_.narrow(0, place.local, size));
    }
    if (offloaded()) parameters_.ValueOf(place).copy_(region.values);
  }
  if (apart) parameters_.DropMasters();
  const at::TensorOptions kept = state.dtype(options_.moments);
  exp_avg_ = Moment(own_.numel(), /*is_signed=*/true, kept);
  exp_avg_sq_ = Moment(own_.numel(), /*is_signed=*/false, kept);
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

}  // namespace equipoise
