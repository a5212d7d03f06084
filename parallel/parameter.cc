#include "parallel/parameter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "configs/base/error.h"
#include "parallel/flat_alignment.h"
#include "parallel/host_copies.h"
#include "parallel/intra_op.h"
#include "parallel/shards.h"
#include "parallel/split_master.h"

namespace equipoise {
namespace {

constexpr int64_t kZeroGrain = 1 << 20;  // bytes that a thread sets to zero at a time

int64_t Aligned(int64_t numel) {
  return (numel + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
}

// Zeros in pages of 2 MiB where the kernel has such: the copies between ranks of one machine, which
// look up each page, and the passes over all of a buffer take less time.
at::Tensor ZerosInLargePages(int64_t numel, const at::TensorOptions& options) {
  at::Tensor zeros = at::empty({numel}, options);
  if (zeros.is_cpu()) {
    constexpr uintptr_t kPage = uintptr_t{2} << 20;
    const auto begin = (reinterpret_cast<uintptr_t>(zeros.data_ptr()) + kPage - 1) / kPage * kPage;
    const auto end = reinterpret_cast<uintptr_t>(zeros.data_ptr()) + zeros.nbytes();
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
  return zeros.zero_();
}

// On the CPU by memset(), which takes half the time of LibTorch's fill.
void SetToZero(at::Tensor& buffer) {
  if (!buffer.is_cpu()) {
    buffer.zero_();
    return;
  }
  auto* const bytes = static_cast<char*>(buffer.mutable_data_ptr());
  IntraOpFor(0, static_cast<int64_t>(buffer.nbytes()), kZeroGrain, [&](int64_t begin, int64_t end) {
    std::memset(bytes + begin, 0, static_cast<size_t>(end - begin));
  });
}

at::Tensor ViewOf(const at::Tensor& buffer, int64_t offset, const Parameter& parameter) {
  return buffer.narrow(0, offset, parameter.numel()).view(parameter.shape);
}

void RequireInRange(const std::vector<Parameter*>& parameters) {
  for (const Parameter* p : parameters) {
    if (!p->value.defined() || at::isfinite(p->value.to(at::kHalf)).all().item<bool>()) continue;
    throw DataError(fmt::format(
        "{}: has values beyond 65504, the largest of fp16; set train.precision to bf16 or fp32",
        p->name));
  }
}

}  // namespace

void Parameter::AddGradient(const at::Tensor& d) {
  EQUIPOISE_CHECK(trainable && gradient.defined(), name, " has no gradient");
  gradient.add_(d.view(shape));
}

FlatParameters::FlatParameters(std::vector<Parameter*> parameters, at::ScalarType compute_dtype,
                               int shards, at::Device device)
    : FlatParameters({std::move(parameters)}, compute_dtype,
                     Sharding{ShardedState::kOptimizer, shards}, device) {}

FlatParameters::FlatParameters(std::vector<std::vector<Parameter*>> units,
                               at::ScalarType compute_dtype, const Sharding& sharding,
                               at::Device device)
    : sharding_(sharding), device_(device) {
  EQUIPOISE_CHECK(
      compute_dtype == at::kFloat || compute_dtype == at::kBFloat16 || compute_dtype == at::kHalf,
      compute_dtype);
  if (!sharding.gradients()) {  // one unit: nothing is padded in between
    std::vector<Parameter*> all;
    for (const auto& unit : units) all.insert(all.end(), unit.begin(), unit.end());
    units = {std::move(all)};
  }
  Place(units);
  Allocate(compute_dtype);
  ShowWhole();
}

// The trainable and the frozen part of each unit are a bucket each.
void FlatParameters::Place(const std::vector<std::vector<Parameter*>>& units) {
  const int ranks = sharding_.Shares(ShardedState::kOptimizer) ? sharding_.ranks : 1;
  std::vector<int64_t> trained_sizes, frozen_sizes;
  int64_t trained = 0, frozen = 0;
  for (const std::vector<Parameter*>& unit : units) {
    int64_t trained_end = trained, frozen_end = frozen;
    units_.emplace_back();
    for (Parameter* parameter : unit) {
      int64_t& end = parameter->trainable ? trained_end : frozen_end;
      index_of_[parameter] = parameters_.size();
      unit_of_.push_back(units_.size() - 1);
      units_.back().push_back(parameters_.size());
      parameters_.push_back(parameter);
      offsets_.push_back(end);
      gradient_offsets_.push_back(parameter->trainable ? end : -1);
      if (!parameter->packs) end += Aligned(parameter->numel());
    }
    trained_sizes.push_back(Shards::Padded(trained_end - trained, ranks));
    const int64_t size = frozen_end - frozen;
    frozen_sizes.push_back(sharding_.values() ? Shards::Padded(size, ranks) : size);
    trained += trained_sizes.back();
    frozen += frozen_sizes.back();
  }
  trained_ = Shards(ranks, trained_sizes);
  frozen_ = Shards(sharding_.values() ? ranks : 1, frozen_sizes);
}

void FlatParameters::Allocate(at::ScalarType compute_dtype) {
  const auto here = [](const Shards& all, bool shard) {
    return shard ? all.shard_numel() : all.numel();
  };
  const auto zeros = [&](int64_t numel, at::ScalarType dtype, ShardedState state) {
    if (!sharding_.Offloads(state) || device_.is_cpu())
      return ZerosInLargePages(numel, at::TensorOptions(device_).dtype(dtype));
    return PinnedMemory(numel, dtype).zero_();
  };
  const int64_t trained = here(trained_, sharding_.values());
  gradient_ = zeros(here(trained_, sharding_.gradients()), at::kFloat, ShardedState::kGradients);
  compute_ =
      zeros(trained + here(frozen_, sharding_.values()), compute_dtype, ShardedState::kParameters);
  master_ = master_aliases_gradient() ? gradient_ : compute_.narrow(0, 0, trained);
}

// Shows what the flat buffers hold whole.
void FlatParameters::ShowWhole() {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const Range trained = trained_.Bucket(unit), frozen = frozen_.Bucket(unit);
    const auto whole = [](const at::Tensor& buffer, int64_t begin, Range bucket) {
      return buffer.narrow(0, begin + bucket.begin, bucket.size());
    };
    if (sharding_.values()) {
      ShowValues(unit, {}, {});
    } else {
      ShowValues(unit, whole(compute_, 0, trained), whole(compute_, trained_.numel(), frozen));
    }
    ShowGradients(unit, sharding_.gradients() ? at::Tensor() : whole(gradient_, 0, trained));
    for (const size_t index : units_[unit]) {
      Parameter& parameter = *parameters_[index];
      const bool held = parameter.trainable && !sharding_.gradients();
      parameter.master = held ? ViewOf(master_, offsets_[index], parameter) : at::Tensor();
    }
  }
}

void FlatParameters::ShowValues(size_t unit, const at::Tensor& trained, const at::Tensor& frozen) {
  for (const size_t index : units_[unit]) {
    Parameter& parameter = *parameters_[index];
    if (parameter.packs) continue;
    const Shards& shards = parameter.trainable ? trained_ : frozen_;
    const at::Tensor& buffer = parameter.trainable ? trained : frozen;
    const int64_t begin = offsets_[index] - shards.Bucket(unit).begin;
    parameter.value = buffer.defined() ? ViewOf(buffer, begin, parameter) : at::Tensor();
  }
}

void FlatParameters::ShowGradients(size_t unit, const at::Tensor& whole) {
  for (const size_t index : units_[unit]) {
    Parameter& parameter = *parameters_[index];
    const int64_t begin = offsets_[index] - trained_.Bucket(unit).begin;
    const bool shown = parameter.trainable && whole.defined();
    parameter.gradient = shown ? ViewOf(whole, begin, parameter) : at::Tensor();
  }
}

at::Tensor FlatParameters::ValueSlice(size_t unit, bool trained) const {
  EQUIPOISE_CHECK(sharding_.values());
  const Shards& shards = trained ? trained_ : frozen_;
  const int64_t begin = (trained ? 0 : trained_.shard_numel()) + shards.ShardOffset(unit);
  return compute_.narrow(0, begin, shards.Bucket(unit).size() / shards.ranks());
}

at::Tensor FlatParameters::GradientSlice(size_t unit) const {
  EQUIPOISE_CHECK(sharding_.gradients());
  return gradient_.narrow(0, trained_.ShardOffset(unit),
                          trained_.Bucket(unit).size() / trained_.ranks());
}

std::vector<FlatParameters::FrozenPart> FlatParameters::FrozenParts(size_t index) const {
  const Parameter& parameter = *parameters_[index];
  if (!sharding_.values()) return {{{0, parameter.numel()}, parameter.value.view({-1})}};
  const int64_t begin = offsets_[index];
  std::vector<FrozenPart> parts;
  for (Shards::Run run : frozen_.RunsIn({begin, begin + parameter.numel()}, sharding_.rank)) {
    run.local += trained_.shard_numel();
    parts.push_back({{run.flat.begin - begin, run.flat.end - begin}, ValueOf(run)});
  }
  return parts;
}

void FlatParameters::SetWeights(const SetFunction& set) {
  EQUIPOISE_CHECK(master_.defined(), "the masters were dropped");
  if (!sharding_.gradients()) {
    set(parameters_);
    return UpdateCompute();
  }
  for (size_t unit = 0; unit < units_.size(); ++unit) SetUnit(unit, set);
  ShowWhole();
}

// Has the whole masters of a unit set, and keeps this rank's part of them.
void FlatParameters::SetUnit(size_t unit, const SetFunction& set) {
  const Range trained = trained_.Bucket(unit), mine = trained_.Slice(unit, sharding_.rank);
  const at::Tensor masters = at::zeros({trained.size()}, gradient_.options().device(device_));
  const at::Tensor frozen =
      at::zeros({frozen_.Bucket(unit).size()}, compute_.options().device(device_));
  // Frozen values that `set` leaves out stay what they are: a base under adapters.
  const Range frozen_bucket = frozen_.Bucket(unit);
  if (sharding_.values()) {
    const Range here = frozen_.Slice(unit, sharding_.rank);
    frozen.narrow(0, here.begin - frozen_bucket.begin, here.size())
        .copy_(ValueSlice(unit, /*trained=*/false));
  } else {
    frozen.copy_(compute_.narrow(0, trained_.numel() + frozen_bucket.begin, frozen.numel()));
  }
  ShowValues(unit, masters, frozen);
  std::vector<Parameter*> parameters;
  for (const size_t index : units_[unit]) {
    parameters.push_back(parameters_[index]);
    if (parameters.back()->trainable) parameters.back()->master = parameters.back()->value;
  }
  set(parameters);
  if (compute_.scalar_type() == at::kHalf) RequireInRange(parameters);
  const at::Tensor slice = masters.narrow(0, mine.begin - trained.begin, mine.size());
  const auto keep = [](const at::Tensor& from, at::Tensor into) {
    if (into.scalar_type() == at::kFloat || from.scalar_type() != at::kFloat) {
      into.copy_(from);
    } else if (into.device() == from.device()) {
      RoundMaster(from, into);
    } else {
      const at::Tensor rounded = at::empty(into.sizes(), into.options().device(from.device()));
      RoundMaster(from, rounded);
      into.copy_(rounded);
    }
  };
  if (sharding_.values()) {
    const Range frozen_slice = frozen_.Slice(unit, sharding_.rank);
    keep(slice, ValueSlice(unit, /*trained=*/true));
    keep(frozen.narrow(0, frozen_slice.begin - frozen_.Bucket(unit).begin, frozen_slice.size()),
         ValueSlice(unit, /*trained=*/false));
  } else {
    keep(masters, compute_.narrow(0, trained.begin, trained.size()));
    keep(frozen, compute_.narrow(0, trained_.numel() + frozen_.Bucket(unit).begin, frozen.numel()));
  }
  if (master_aliases_gradient()) keep(slice, GradientSlice(unit));
  for (Parameter* parameter : parameters) parameter->master = at::Tensor();
}

void FlatParameters::ArriveLater(Range flat, std::function<void()> wait) {
  pending_.push_back({flat, std::move(wait)});
}

void FlatParameters::AwaitValues() {
  for (const Pending& pending : pending_) pending.wait();
  pending_.clear();
}

void FlatParameters::AwaitValues(const std::vector<Parameter*>& parameters) {
  if (pending_.empty()) return;
  for (const Parameter* parameter : parameters) {
    if (!parameter->trainable) continue;
    const int64_t begin = offsets_[index_of_.at(parameter)], end = begin + parameter->numel();
    std::erase_if(pending_, [&](const Pending& pending) {
      const bool read = pending.flat.begin < end && begin < pending.flat.end;
      if (read) pending.wait();
      return read;
    });
  }
}

void FlatParameters::ZeroGradient() {
  DropMasters();
  SetToZero(gradient_);
}

void FlatParameters::UpdateCompute() {
  EQUIPOISE_CHECK(master_.defined(), "the masters were dropped");
  EQUIPOISE_CHECK(!sharding_.gradients(), "use SetWeights()");
  if (!master_aliases_gradient()) return;
  RoundMaster(master_, compute_.narrow(0, 0, master_.numel()));
  if (compute_.scalar_type() == at::kHalf) RequireInRange(parameters_);
}

void FlatParameters::DropMasters() {
  if (!master_aliases_gradient() || !master_.defined()) return;
  for (Parameter* parameter : parameters_) parameter->master = at::Tensor();
  master_ = at::Tensor();
  gradient_.zero_();
}

}  // namespace equipoise
