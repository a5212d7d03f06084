// Collectives of a group match by the order of their calls, and data ranks may run different layers
// of a pass, or none: a micro-batch of one has pictures, that of another has not. The invariant is
// that the order of all gathers and sums follows from the uses of a pass alone. So they start in
// Begin(), Acquire() and Release(), which every use goes through, on each rank, once.

#include "parallel/zero/sharded_units.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {

ShardedUnits::ShardedUnits(FlatParameters& parameters, Communicator& data, Communicator* copies,
                           int prefetch)
    : parameters_(parameters),
      data_(data),
      copies_(copies),
      prefetch_(static_cast<size_t>(prefetch)),
      to_host_(parameters.device(), CopyDirection::kToHost),
      to_device_(parameters.device(), CopyDirection::kToDevice) {
  const Sharding& sharding = parameters.sharding();
  EQUIPOISE_CHECK(sharding.gradients() && sharding.ranks == data.size(), sharding.ranks, " shards");
}

void ShardedUnits::Begin(std::vector<Use> uses) {
  EQUIPOISE_CHECK(!in_pass_, "a pass within a pass");
  in_pass_ = true;
  uses_ = std::move(uses);
  next_ = wanted_ = gathered_ = 0;
  StartUntil(prefetch_ + 1);
  if (!whole_.empty()) data_.ProgressInBackground();
}

void ShardedUnits::Acquire() {
  EQUIPOISE_CHECK(in_pass_ && next_ < uses_.size(), "no more layers in this pass");
  for (const size_t unit : uses_[next_].values) {
    Whole& whole = whole_.at(unit);
    for (Work& gather : whole.gathers) gather.WaitOnStream();
    whole.gathers.clear();
    if (whole.shown) continue;
    whole.here.WaitOnStream();
    whole.shown = true;
    parameters_.ShowValues(unit, whole.trained, whole.frozen);
  }
  if (gathered_ == uses_.size() || gathered_ > next_ + prefetch_) return;
  StartUntil(gathered_ + 1);
  data_.ProgressInBackground();
}

void ShardedUnits::Release() {
  const Use& use = uses_[next_++];
  for (const size_t unit : use.values) {
    const auto found = whole_.find(unit);
    if (--found->second.wanted > 0) continue;
    parameters_.ShowValues(unit, {}, {});
    whole_.erase(found);
  }
  for (const size_t unit : use.sums) StartSum(unit);
  if (!use.sums.empty()) data_.ProgressInBackground();
}

void ShardedUnits::End() {
  while (next_ < uses_.size()) {
    Acquire();
    Release();
  }
  in_pass_ = false;
}

// Starts all that comes before the gathers of a use, and these of the uses before it.
void ShardedUnits::StartUntil(size_t end) {
  const size_t ahead = parameters_.values_device() == parameters_.device() ? 0 : 1;
  while (wanted_ < std::min(uses_.size(), end + ahead)) Want(uses_[wanted_++]);
  while (gathered_ < std::min(uses_.size(), end)) Gather(uses_[gathered_++]);
}

// Has this rank's slices on the device, or on their way.
void ShardedUnits::Want(const Use& use) {
  for (const size_t unit : use.values) {
    Whole& whole = whole_[unit];
    if (whole.wanted++ > 0) continue;
    whole.trained = parameters_.ValueSlice(unit, /*trained=*/true);
    whole.frozen = parameters_.ValueSlice(unit, /*trained=*/false);
    if (whole.trained.device() == parameters_.device()) continue;
    for (at::Tensor* slice : {&whole.trained, &whole.frozen}) {
      const at::Tensor host = *slice;
      *slice = at::empty(host.sizes(), host.options().device(parameters_.device()));
      to_device_.Run([&] { slice->copy_(host, /*non_blocking=*/true); });
    }
    whole.here = to_device_.Mark();
  }
}

void ShardedUnits::Gather(const Use& use) {
  for (const size_t unit : use.values) {
    Whole& whole = whole_.at(unit);
    if (std::exchange(whole.gathered, true) || data_.size() == 1) continue;
    whole.here.WaitOnStream();  // gathers come behind the compute stream
    whole.trained = GatherPart(whole.trained, whole.gathers);
    whole.frozen = GatherPart(whole.frozen, whole.gathers);
  }
}

at::Tensor ShardedUnits::GatherPart(const at::Tensor& mine, std::vector<Work>& gathers) {
  at::Tensor whole = at::empty({mine.numel() * data_.size()}, mine.options());
  if (whole.numel() == 0) return whole;
  gathers.push_back(data_.AllGather(whole, mine));
  traffic_.gathered += static_cast<int64_t>(whole.nbytes() - mine.nbytes());
  return whole;
}

void ShardedUnits::ShowGradients(size_t unit) {
  const int64_t size = parameters_.trained().Bucket(unit).size();
  if (size == 0 || gradients_.count(unit) > 0) return;
  at::Tensor& gradient = gradients_[unit];
  gradient = at::zeros({size}, parameters_.gradient().options().device(parameters_.device()));
  parameters_.ShowGradients(unit, gradient);
}

// Of one unit the whole gradient is in memory while it is summed, and of one more while it is made.
void ShardedUnits::StartSum(size_t unit) {
  FinishSums();
  ShowGradients(unit);
  const auto found = gradients_.find(unit);
  if (found == gradients_.end()) return;
  const at::Tensor whole = std::move(found->second);
  gradients_.erase(found);
  parameters_.ShowGradients(unit, {});
  if (data_.size() == 1) return sums_.push_back({unit, whole, whole, Work()});
  at::Tensor slice = at::empty({whole.numel() / data_.size()}, whole.options());
  Work work = data_.ReduceScatter(slice, whole, ReduceOp::kSum);
  traffic_.summed += static_cast<int64_t>(whole.nbytes() - slice.nbytes());
  sums_.push_back({unit, whole, slice, std::move(work)});
}

void ShardedUnits::FinishSums() {
  ForgetLeft();
  for (Sum& sum : sums_) {
    sum.work.WaitOnStream();
    at::Tensor kept = parameters_.GradientSlice(sum.unit);
    if (kept.device() == sum.slice.device()) {
      kept.add_(sum.slice);
    } else {
      AddOnHost(sum);
    }
    if (copies_ == nullptr || --expected_.at(sum.unit) > 0) continue;
    of_copies_.push_back(copies_->AllReduce(kept, ReduceOp::kSum));
    copies_->ProgressInBackground();
    traffic_.copied += static_cast<int64_t>(kept.nbytes());
  }
  sums_.clear();
}

// The device adds: it has the time, and the host goes on giving it layers.
void ShardedUnits::AddOnHost(const Sum& sum) {
  at::Tensor kept = parameters_.GradientSlice(sum.unit), slice = sum.slice;
  const bool first = summed_.insert(sum.unit).second;
  to_host_.Run([&] {
    if (!first) slice.add_(kept.to(slice.device(), slice.scalar_type(), /*non_blocking=*/true));
    kept.copy_(slice, /*non_blocking=*/true);
  });
  leaving_.push_back({sum.whole, slice, to_host_.Mark()});
}

// What the device is given from now on may take the memory of sums that have left.
void ShardedUnits::ForgetLeft() {
  for (const Leaving& each : leaving_) each.gone.WaitOnStream();
  leaving_.clear();
}

void ShardedUnits::Finish() {
  EQUIPOISE_CHECK(!in_pass_ && gradients_.empty(), gradients_.size(),
                  " gradients that no pass sums");
  FinishSums();
  for (const auto& [unit, sums] : expected_)
    EQUIPOISE_CHECK(copies_ == nullptr || sums == 0, sums, " more sums of unit ", unit);
  for (Work& each : of_copies_) each.WaitOnStream();
  of_copies_.clear();
  if (!leaving_.empty()) leaving_.back().gone.Wait();
  ForgetLeft();
  summed_.clear();
}

}  // namespace equipoise
