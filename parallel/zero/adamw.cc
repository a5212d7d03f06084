// A step is the row function of parallel/zero/kernels: weights, remainders, gradients and moments
// are read and written once. On a GPU it is one launch, where the program's own kernels are loaded;
// on the host a loop over chunks on all threads (adamw_on_host.h).
//
// In fp16 the masters are in a buffer of their own, and a copy rounds them into the weights.
//
// A GPU without own kernels takes ATen's fused AdamW, region by region of the shard: of each, the
// fp32 numbers are made from what is kept of them, updated, rounded and split again. What is not
// kept in fp32 is thus never in memory as fp32 but for a region; so are steps that are only tried.
// Every GPU does so where moments are codes, which the own kernel does not know.
// Every element is updated by the same operations whichever rank holds it and however the buffer is
// cut, because slices and regions begin at multiples of kFlatAlignment: sharding changes no bit.
//
// Offloaded (ZeRO-Offload, arXiv 2101.06840, section 4), a region's gradients arrive while the host
// updates the region before, and its values leave while it updates the next: of the copies only the
// first and the last have nothing to run beside. The host could start no earlier, as clipping needs
// the norm of all gradients first; copying them beside backward would save the first copy alone.
// All copies are in the compute stream, so what reads the values comes later.

#include "parallel/zero/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "configs/base/error.h"
#include "parallel/flat_alignment.h"
#include "parallel/kernels/launchers.h"
#include "parallel/kernels/own_operator.h"
#include "parallel/split_master.h"
#include "parallel/zero/copy_to_host.h"
#include "parallel/zero/kernels/adamw_on_host.h"
#include "parallel/zero/magnitude.h"

namespace equipoise {
namespace {

using kernels::AdamWRow;

// Elements of a region: what stays in a CPU's caches; enough to fill a GPU for long; copies between
// the two at their full rate, of which two of gradients are in memory, a power of two in bytes; few
// where codes become fp32 on the way.
constexpr int64_t kCpuRegion = 1 << 16, kDeviceRegion = 1 << 26, kOffloadedRegion = 1 << 22,
                  kDeviceRegionOfCodes = 1 << 24;
static_assert(kCpuRegion % kFlatAlignment == 0 && kFlatAlignment % kernels::kCodeBlock == 0);
constexpr int64_t kChunk = 8192;        // elements: 8 for each thread of a team on a GPU, 4 times
constexpr int64_t kChunksOfThread = 4;  // at least
constexpr size_t kMostGroups = AdamWRow<float, float>::kMostGroups;
constexpr double kLargest = 3.3e38;  // finite in bf16 too

// Of each group.
struct Rates {
  std::vector<double> lr, decay;
};
Rates RatesOf(const std::vector<ParameterGroup>& groups, double lr) {
  Rates rates;
  for (const ParameterGroup& group : groups) {
    rates.lr.push_back(lr * group.lr_factor);
    rates.decay.push_back(group.weight_decay);
  }
  return rates;
}

template <class Row>
void RunOnThreads(const Row& row, Range rows) {
  at::parallel_for(rows.begin, rows.end, kChunksOfThread,
                   [&row](int64_t begin, int64_t end) { kernels::RunOnHost(row, begin, end); });
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
  EQUIPOISE_CHECK(groups_.size() <= kMostGroups, groups_.size(), " groups");
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
  for (size_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
    const Range slice = shards_.Slice(bucket, rank_);
    for (int64_t begin = slice.begin; begin < slice.end; begin += most) {
      regions_.push_back({{rank_,
                           {begin, std::min(begin + most, slice.end)},
                           shards_.ShardOffset(bucket) + begin - slice.begin},
                          std::vector<std::vector<Range>>(groups_.size()),
                          {},
                          {}});
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

std::vector<int64_t> AdamW::SizesOf(size_t index) const {
  if (shards_.ranks() == 1) return parameters_.parameters()[index]->shape;
  int64_t size = 0;
  for (const Range& run : Runs(index)) size += run.size();
  return {size};
}

at::Tensor AdamW::View(const Moment& moment, size_t index) const {
  const std::vector<Shards::Run> runs = shards_.RunsIn(Whole(index), rank_);
  int64_t count = 0;
  for (const Shards::Run& run : runs) count += run.flat.size();
  return moment.Saved(runs.empty() ? 0 : runs[0].local, count).view(SizesOf(index));
}

std::array<LazyTensor, 2> AdamW::Moments(size_t index) const {
  if (!moments_are_codes()) return {exp_avg(index), exp_avg_sq(index)};
  const std::vector<int64_t> sizes = SizesOf(index);
  return {LazyTensor(sizes, at::kFloat, [this, index] { return exp_avg(index); }),
          LazyTensor(sizes, at::kFloat, [this, index] { return exp_avg_sq(index); })};
}

void AdamW::SetMoments(size_t index, const at::Tensor& average, const at::Tensor& square) {
  const std::vector<Shards::Run> runs = shards_.RunsIn(Whole(index), rank_);
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
  const std::vector<Shards::Run> runs = shards_.RunsIn(Whole(index), rank_);
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
  return {sizes, at::kFloat, [this, index, sizes] { return JoinedMaster(index).view(sizes); }};
}

void AdamW::TakeMasters() {
  const bool apart = parameters_.master_aliases_gradient();
  const bool whole = apart && parameters_.compute().scalar_type() == at::kHalf;
  const at::TensorOptions state =
      offloaded() ? at::TensorOptions(at::kCPU) : parameters_.gradient().options();
  if (apart) {
    (whole ? masters_ : remainders_) =
        at::zeros({shards_.shard_numel()}, state.dtype(whole ? at::kFloat : at::kShort));
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
    } else {
      SplitMaster(masters, ValuesOf(region), remainders_.narrow(0, place.local, size));
    }
    if (offloaded()) parameters_.ValueOf(place).copy_(region.values);
  }
  if (apart) parameters_.DropMasters();
  const at::TensorOptions kept = state.dtype(options_.moments);
  exp_avg_ = Moment(shards_.shard_numel(), /*is_signed=*/true, kept);
  exp_avg_sq_ = Moment(shards_.shard_numel(), /*is_signed=*/false, kept);
}

AdamW::State AdamW::Load(const Region& region) const {
  const Shards::Run& place = region.place;
  const int64_t size = place.flat.size();
  const at::Tensor values =
      masters_.defined() ? masters_.narrow(0, place.local, size) : ValuesOf(region);
  State state{values, exp_avg_.Numbers(place.local, size), exp_avg_sq_.Numbers(place.local, size)};
  if (remainders_.defined()) {
    state.masters = at::empty({size}, values.options().dtype(at::kFloat));
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
  exp_avg_.Set(place.local, state.averages);
  exp_avg_sq_.Set(place.local, state.squares);
}

void AdamW::Update(const Region& region, State& state, double lr, int64_t step) const {
  if (steps_on_host()) return UpdateByRows(region, state, lr, step);
  const at::Tensor gradients = parameters_.GradientOf(region.place);
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
    at::_fused_adamw_(masters, runs_of(gradients), averages, squares,
                      /*max_exp_avg_sqs=*/{}, step_of_each, lr * groups_[i].lr_factor,
                      options_.beta1, options_.beta2, groups_[i].weight_decay, options_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
}

// The row function's step, but for where the numbers lie.
template <class Row>
void AdamW::BeginRow(double lr, int64_t step, Row& row) const {
  const Rates rates = RatesOf(groups_, lr);
  row.Begin({rates.lr.data(), rates.decay.data(), groups_.size(), options_.beta1, options_.beta2,
             options_.eps, step});
}

// Update() of copies on the host.
void AdamW::UpdateByRows(const Region& region, State& state, double lr, int64_t step) const {
  const at::Tensor gradients = parameters_.GradientOf(region.place).cpu();
  std::vector<kernels::AdamWChunk> chunks;
  AddChunks(region, {}, chunks);
  AdamWRow<float, float> row = {};
  BeginRow(lr, step, row);
  row.chunks = chunks.data();
  row.weight = kernels::MutableData<float>(state.masters);
  row.gradient = kernels::Data<float>(gradients);
  row.average = kernels::MutableData<float>(state.averages);
  row.square = kernels::MutableData<float>(state.squares);
  RunOnThreads(row, {0, static_cast<int64_t>(chunks.size())});
}

void AdamW::AddChunks(const Region& region, const Begins& at,
                      std::vector<kernels::AdamWChunk>& chunks) const {
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (const Range& run : region.runs[group]) {
      for (int64_t i = run.begin; i < run.end; i += kChunk) {
        chunks.push_back({at.weight + i, at.gradient + i, at.local + i,
                          std::min(kChunk, run.end - i), static_cast<int64_t>(group)});
      }
    }
  }
}

void AdamW::MakeChunks() {
  for (Region& region : regions_) {
    const Shards::Run& place = region.place;
    Begins at{0, 0, place.local};  // a piece of values and of gradients
    if (!offloaded()) {
      at.weight = parameters_.ValueAt(place);
      at.gradient = parameters_.GradientAt(place);
    }
    if (masters_.defined()) at.weight = place.local;
    const auto begin = static_cast<int64_t>(chunks_.size());
    AddChunks(region, at, chunks_);
    region.chunks = {begin, static_cast<int64_t>(chunks_.size())};
  }
}

// All but the moments.
template <class Weight, class Row>
void AdamW::BeginHostRow(const at::Tensor& values, const at::Tensor& gradients, double lr,
                         Row& row) const {
  BeginRow(lr, steps_, row);
  row.chunks = chunks_.data();
  row.weight = kernels::MutableData<Weight>(values);
  row.remainder = remainders_.defined() ? kernels::MutableData<int16_t>(remainders_) : nullptr;
  row.gradient = kernels::Data<float>(gradients);
}

void AdamW::StepOnHost(Range chunks, const at::Tensor& values, const at::Tensor& gradients,
                       double lr) {
  kernels::OnType(values, [&](auto weight) {
    using Weight = decltype(weight);
    if (moments_are_codes()) {
      kernels::AdamWOnCodes<Weight> row = {};
      BeginHostRow<Weight>(values, gradients, lr, row.rows);
      row.average = exp_avg_.codes();
      row.square = exp_avg_sq_.codes();
      return RunOnThreads(row, chunks);
    }
    kernels::OnType(exp_avg_.kept(), [&](auto moment) {
      using Number = decltype(moment);
      AdamWRow<Weight, Number> row = {};
      BeginHostRow<Weight>(values, gradients, lr, row);
      row.average = kernels::MutableData<Number>(exp_avg_.kept());
      row.square = kernels::MutableData<Number>(exp_avg_sq_.kept());
      RunOnThreads(row, chunks);
    });
  });
}

void AdamW::RoundMasters() {
  for (const Region& region : regions_) {
    const Shards::Run& place = region.place;
    RoundMaster(masters_.narrow(0, place.local, place.flat.size()), parameters_.ValueOf(place));
  }
}

void AdamW::StepOffloaded(double lr) {
  int64_t most = 0;
  for (const Region& region : regions_) most = std::max(most, region.place.flat.size());
  for (at::Tensor& piece : arriving_) {
    if (!piece.defined()) piece = PinnedMemory(most, at::kFloat);
  }
  std::array<CopyToHost, 2> copies;
  const auto start = [&](size_t i) {
    const Shards::Run& place = regions_[i].place;
    copies[i % 2] =
        CopyToHost(parameters_.GradientOf(place), arriving_[i % 2].narrow(0, 0, place.flat.size()));
  };
  if (!regions_.empty()) start(0);
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (i + 1 < regions_.size()) start(i + 1);
    copies[i % 2].Wait();
    const Region& region = regions_[i];
    StepOnHost(region.chunks, masters_.defined() ? masters_ : region.values, arriving_[i % 2], lr);
    if (masters_.defined()) {
      const Shards::Run& place = region.place;
      RoundMaster(masters_.narrow(0, place.local, place.flat.size()), region.values);
    }
    parameters_.ValueOf(region.place).copy_(region.values, /*non_blocking=*/true);
  }
}

using OwnAdamW = OwnOperator<void(
    const at::Tensor& chunks, const at::Tensor& weight, const std::optional<at::Tensor>& remainder,
    const at::Tensor& gradient, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
    c10::ArrayRef<double> lr, c10::ArrayRef<double> weight_decay, c10::ArrayRef<double> betas,
    double eps, int64_t step)>;

// Step() by the program's own kernel. Returns false, and does nothing, where there is none.
bool AdamW::StepByOwnKernel(double lr) {
  static const OwnAdamW own("equipoise::adamw_");
  const at::Tensor& gradient = parameters_.gradient();
  if (moments_are_codes() || !own.IsFor(gradient)) return false;
  if (!chunks_on_device_.defined()) {
    constexpr auto kNumbers = static_cast<int64_t>(sizeof chunks_[0] / sizeof(int64_t));
    chunks_on_device_ =
        at::from_blob(chunks_.data(), {static_cast<int64_t>(chunks_.size()), kNumbers}, at::kLong)
            .to(gradient.device(), at::kLong, /*non_blocking=*/false, /*copy=*/true);
  }
  const Rates rates = RatesOf(groups_, lr);
  const std::optional<at::Tensor> remainders =
      remainders_.defined() ? std::optional(remainders_) : std::nullopt;
  own(chunks_on_device_, masters_.defined() ? masters_ : parameters_.compute(), remainders,
      gradient, exp_avg_.kept(), exp_avg_sq_.kept(), rates.lr, rates.decay,
      std::array{options_.beta1, options_.beta2}, options_.eps, steps_);
  if (masters_.defined()) RoundMasters();
  return true;
}

void AdamW::Step(double lr) {
  ++steps_;
  if (chunks_.empty()) MakeChunks();
  if (offloaded()) return StepOffloaded(lr);
  if (steps_on_host()) {
    StepOnHost({0, static_cast<int64_t>(chunks_.size())},
               masters_.defined() ? masters_ : parameters_.compute(), parameters_.gradient(), lr);
    if (masters_.defined()) RoundMasters();
    return;
  }
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
    State after{now.masters.clone(), now.averages.clone(), now.squares.clone()};
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

}  // namespace equipoise
