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

ShardedUnits::ShardedUnits(FlatParameters& parameters, Communicator& data, int prefetch)
    : parameters_(parameters), data_(data), prefetch_(static_cast<size_t>(prefetch)) {
  const Sharding& sharding = parameters.sharding();
  EQUIPOISE_CHECK(sharding.gradients() && sharding.ranks == data.size(), sharding.ranks, " shards");
}

void ShardedUnits::Begin(std::vector<Use> uses) {
  EQUIPOISE_CHECK(!in_pass_, "a pass within a pass");
  in_pass_ = true;
  uses_ = std::move(uses);
  next_ = started_ = 0;
  while (started_ < std::min(uses_.size(), prefetch_ + 1)) Want(uses_[started_++]);
  if (!whole_.empty()) data_.ProgressInBackground();
}

void ShardedUnits::Acquire() {
  EQUIPOISE_CHECK(in_pass_ && next_ < uses_.size(), "no more layers in this pass");
  for (const size_t unit : uses_[next_].values) {
    Whole& whole = whole_.at(unit);
    for (Work& gather : whole.gathers) gather.WaitOnStream();
    whole.gathers.clear();
    if (whole.shown) continue;
    whole.shown = true;
    parameters_.ShowValues(unit, whole.trained, whole.frozen);
  }
  if (started_ == uses_.size() || started_ > next_ + prefetch_) return;
  Want(uses_[started_++]);
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

void ShardedUnits::Want(const Use& use) {
  for (const size_t unit : use.values) {
    Whole& whole = whole_[unit];
    if (whole.wanted++ > 0) continue;
    whole.trained = Gather(unit, /*trained=*/true, whole.gathers);
    whole.frozen = Gather(unit, /*trained=*/false, whole.gathers);
  }
}

at::Tensor ShardedUnits::Gather(size_t unit, bool trained, std::vector<Work>& gathers) {
  const at::Tensor mine = parameters_.ValueSlice(unit, trained);
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
  gradient = at::zeros({size}, parameters_.gradient().options());
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
  at::Tensor slice = at::empty({whole.numel() / data_.size()}, whole.options());
  Work work = data_.ReduceScatter(slice, whole, ReduceOp::kSum);
  traffic_.summed += static_cast<int64_t>(whole.nbytes() - slice.nbytes());
  sums_.push_back({unit, whole, slice, std::move(work)});
}

void ShardedUnits::FinishSums() {
  for (Sum& sum : sums_) {
    sum.work.WaitOnStream();
    parameters_.GradientSlice(sum.unit).add_(sum.slice);
  }
  sums_.clear();
}

void ShardedUnits::Finish() {
  EQUIPOISE_CHECK(!in_pass_ && gradients_.empty(), gradients_.size(),
                  " gradients that no pass sums");
  FinishSums();
}

}  // namespace equipoise
