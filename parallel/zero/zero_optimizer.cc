// ZeRO (Rajbhandari et al. 2020): AdamW's state (two moments, and in bf16 what the weights leave of
// their masters) is spread over the data ranks. The invariant is that rank r owns slice r of every
// bucket: the sum of the gradients is left there, AdamW updates it, and the all-gather of Step()
// sends it to the others, unless they keep their slices alone.
//
// A step that would leave a number that is not finite has to be refused by all ranks before any has
// changed a weight. Bounds from step to step (step_bound.h) settle that without communication; only
// where they fail is the step tried on copies and the outcome reduced over the world.

#include "parallel/zero/zero_optimizer.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/values.h"

namespace equipoise {
namespace {

constexpr double kStepOfBf16 = 1.0 / 128;  // between neighbours, of the smaller, at most
constexpr int64_t kReadAtOnce = 1 << 24;   // fp32 moments in memory before they become codes
constexpr int64_t kPieceOfShare = 1 << 22;

}  // namespace

Shards ZeroShards(ShardedState sharded, const FlatParameters& parameters, const Communicator& data,
                  int64_t bucket_bytes, CopiedElements* copied) {
  if (parameters.sharding().gradients()) return parameters.trained();
  const int64_t numel = parameters.gradient().numel();
  const int64_t bucket = bucket_bytes / static_cast<int64_t>(sizeof(float));
  if (sharded == ShardedState::kNone) {
    if (copied != nullptr) *copied = {};
    return Shards(numel);
  }
  if (copied != nullptr && copied->shared())
    return ShardsOfCopied(numel, data.size(), bucket, *copied);
  return data.size() == 1 ? Shards(numel) : Shards(numel, data.size(), bucket);
}

ZeroOptimizer::ZeroOptimizer(FlatParameters& parameters, std::vector<ParameterGroup> groups,
                             const AdamWOptions& options, const Shards& shards, Groups ranks)
    : parameters_(parameters),
      shards_(shards),
      data_(ranks.data),
      world_(ranks.world),
      shard_copies_(ranks.shard_copies),
      copies_(ranks.copies),
      models_(ranks.models),
      copied_(ranks.copied),
      adamw_(parameters, std::move(groups), options,
             OwnedSlices(shards, sharded() ? ranks.data.rank() : 0, ranks.copied)),
      norm_(parameters, shards, ranks.data, ranks.world,
            ranks.shard_copies == nullptr || ranks.shard_copies->rank() == 0) {
  if (copied_.shared()) ListShared();
}

ZeroOptimizer::~ZeroOptimizer() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    parameters_.AwaitValues();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nobody reads them any more
  }
}

void ZeroOptimizer::TakeMasters() {
  bound_.reset();
  adamw_.TakeMasters();
}

void ZeroOptimizer::ScaleGradients(double factor) {
  if (parameters_.sharding().gradients()) {
    parameters_.gradient().mul_(factor);
  } else {
    const int rank = sharded() ? data_.rank() : 0;
    for (size_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
      const Range slice = shards_.Slice(bucket, rank);
      parameters_.gradient().narrow(0, slice.begin, slice.size()).mul_(factor);
    }
  }
  largest_gradient_ *= std::abs(factor);
}

void ZeroOptimizer::set_steps(int64_t steps) {
  adamw_.set_steps(steps);
  bound_.reset();
}

void ZeroOptimizer::MeasureBound() {
  const StepBound mine = adamw_.Largest();
  double lr_factor = 0, decay = 0;
  for (const ParameterGroup& group : adamw_.groups()) {
    lr_factor = std::max(lr_factor, group.lr_factor);
    decay = std::max(decay, group.weight_decay);
  }
  const std::vector<double> most = AllReduceValues(
      world_, std::vector<double>{mine.weight, mine.average, mine.square, lr_factor, decay},
      ReduceOp::kMax);
  bound_ = StepBound{most[0], most[1], most[2]};
  largest_lr_factor_ = most[3];
  largest_decay_ = most[4];
}

bool ZeroOptimizer::StepIsFinite(double lr, double clip) {
  if (!bound_) MeasureBound();
  const AdamWOptions& options = adamw_.options();
  const StepBound after = bound_->After(
      {largest_gradient_ * std::abs(clip), lr * largest_lr_factor_, largest_decay_, options.beta1,
       options.beta2, options.eps, adamw_.steps() + 1, options.rounding_seed ? kStepOfBf16 : 0});
  largest_gradient_ = std::numeric_limits<double>::infinity();
  bool finite = after.safe();
  if (!finite) finite = !AnyRank(world_, !adamw_.StepIsFinite(lr, clip));
  if (models_ != nullptr) finite = !AnyRank(*models_, !finite);
  bound_ = finite && after.safe() ? std::optional(after) : std::nullopt;
  return finite;
}

bool ZeroOptimizer::Step(double lr, double clip) {
  parameters_.AwaitValues();
  if (!StepIsFinite(lr, clip)) return false;
  adamw_.Step(lr, clip);
  SendValues();
  return true;
}

std::vector<Range> ZeroOptimizer::PiecesOfShare() const {
  std::vector<Range> pieces;
  for (int64_t begin = 0; begin < share_numel(); begin += kPieceOfShare)
    pieces.push_back({begin, std::min(begin + kPieceOfShare, share_numel())});
  return pieces;
}

at::Tensor ZeroOptimizer::Masters(Range share) const {
  parameters_.AwaitValues();
  return adamw_.Masters(share);
}

void ZeroOptimizer::SetMasters(const std::function<at::Tensor(Range share)>& masters) {
  parameters_.AwaitValues();
  for (const Range& piece : PiecesOfShare()) adamw_.SetMasters(piece, masters(piece));
  bound_.reset();
  SendValues();
}

// To the ranks that have the values of this rank's share as well, unless passes gather them.
void ZeroOptimizer::SendValues() {
  const bool shares = sharded() || copied_.shared();
  if (shares && !parameters_.sharding().values()) GatherValues();
}

// In the order in which the next forward reads them.
void ZeroOptimizer::GatherValues() {
  const at::Tensor& compute = parameters_.compute();
  std::vector<Work> of_rest;
  for (size_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
    const Range all = shards_.Bucket(bucket);
    if (all.size() == 0) continue;
    if (copied_.shared() && bucket < copied_.buckets) GatherShares(bucket);
    if (!sharded()) continue;
    const Range mine = shards_.Slice(bucket, data_.rank());
    at::Tensor output = compute.narrow(0, all.begin, all.size());
    const at::Tensor input = compute.narrow(0, mine.begin, mine.size());
    Work gather = data_.AllGather(output, input);
    if (bucket >= copied_.buckets && all.begin < copied_.numel) of_rest.push_back(gather);
    parameters_.ArriveLater(all, [gather]() mutable { gather.WaitOnStream(); });
  }
  if (copied_.shared()) SendRest(of_rest);
  if (sharded()) data_.ProgressInBackground();
}

// Completes this rank's slice of a bucket from the shares that the copies have updated, before the
// data ranks gather the slices.
void ZeroOptimizer::GatherShares(size_t bucket) {
  const Range slice = shards_.Slice(bucket, sharded() ? data_.rank() : 0);
  const int64_t share = slice.size() / copied_.copies;
  at::Tensor output = parameters_.compute().narrow(0, slice.begin, slice.size());
  const at::Tensor input = output.narrow(0, copied_.index * share, share);
  copies_->AllGather(output, input).WaitOnStream();
}

// Sends the copied elements that the first copy alone has updated, once its data ranks have
// gathered them.
void ZeroOptimizer::SendRest(std::vector<Work>& gathers) {
  for (Work& gather : gathers) gather.WaitOnStream();
  const size_t first = copied_.buckets;
  const int64_t begin = first == 0 ? 0 : shards_.Bucket(first - 1).end;
  if (begin == copied_.numel) return;
  at::Tensor values = parameters_.compute().narrow(0, begin, copied_.numel - begin);
  copies_->Broadcast(values, 0).WaitOnStream();
}

std::vector<ZeroOptimizer::State> ZeroOptimizer::Moments() const {
  std::vector<State> moments;
  for (size_t i = 0; i < parameters_.parameters().size(); ++i) {
    const Parameter* parameter = parameters_.parameters()[i];
    if (!parameter->trainable) continue;
    if (!adamw_.Runs(i).empty()) AddMoments(i, moments);
  }
  return moments;
}

void ZeroOptimizer::AddMoments(size_t index, std::vector<State>& states) const {
  const Parameter* parameter = parameters_.parameters()[index];
  const std::vector<Range> runs = adamw_.Runs(index);
  const auto [average, square] = adamw_.Moments(index);
  states.push_back({"exp_avg." + parameter->name, parameter, runs, average});
  states.push_back({"exp_avg_sq." + parameter->name, parameter, runs, square});
}

void ZeroOptimizer::ReadMoments(const std::function<void(const std::vector<State>&)>& read) {
  if (!adamw_.moments_are_codes()) return read(Moments());
  std::vector<State> some;
  std::vector<size_t> indices;
  int64_t numel = 0;
  const auto keep = [&] {
    read(some);
    for (size_t i = 0; i < indices.size(); ++i)
      adamw_.SetMoments(indices[i], some[2 * i].values.Get(), some[2 * i + 1].values.Get());
    some.clear(), indices.clear(), numel = 0;
  };
  for (size_t i = 0; i < parameters_.parameters().size(); ++i) {
    if (!parameters_.parameters()[i]->trainable || adamw_.Runs(i).empty()) continue;
    AddMoments(i, some);
    indices.push_back(i);
    for (size_t j = some.size() - 2; j < some.size(); ++j) {
      some[j].values = LazyTensor(at::empty(some[j].values.sizes(), at::kFloat));
      numel += some[j].values.numel();
    }
    if (numel >= kReadAtOnce) keep();
  }
  keep();
}

// Of what tensor ranks hold alike one is the owner, and of copies the first. Where each copy saves
// its share, that rank's counterparts do: the first copy tells the others.
void ZeroOptimizer::ListShared() {
  const auto count = static_cast<int64_t>(parameters_.parameters().size());
  saves_shared_.assign(static_cast<size_t>(count), false);
  at::Tensor owners = at::zeros({count}, at::kLong);
  int64_t shared = 0;  // parameters behind the copied ones differ from copy to copy
  for (size_t i = 0; i < saves_shared_.size(); ++i) {
    if (IsShared(i)) owners[shared++] = parameters_.parameters()[i]->part.owner ? 1 : 0;
  }
  at::Tensor told = owners.narrow(0, 0, shared);
  copies_->Broadcast(told, 0).Wait();
  int64_t next = 0;
  for (size_t i = 0; i < saves_shared_.size(); ++i) {
    if (IsShared(i)) saves_shared_[i] = told[next++].item<int64_t>() == 1;
  }
}

// Whether copies of a parameter share out its state: then each saves what it has of it.
bool ZeroOptimizer::IsShared(size_t index) const {
  const int64_t offset = parameters_.gradient_offset(index);
  return copied_.shared() && offset >= 0 && offset < copied_.numel;
}

// Copies of the state take turns by whole parameters.
bool ZeroOptimizer::Saves(size_t index) const {
  if (shard_copies_ != nullptr) {
    const auto turn = static_cast<int>(index % static_cast<size_t>(shard_copies_->size()));
    if (turn != shard_copies_->rank()) return false;
  }
  if (IsShared(index)) return saves_shared_[index];
  if (!parameters_.parameters()[index]->part.owner) return false;
  return sharded() || static_cast<int>(index % static_cast<size_t>(data_.size())) == data_.rank();
}

Range ZeroOptimizer::FrozenRange(const Parameter& parameter) const {
  const int64_t numel = parameter.numel(), ranks = shards_.ranks(), rank = data_.rank();
  if (!sharded()) return {0, numel};
  return {numel * rank / ranks, numel * (rank + 1) / ranks};
}

void ZeroOptimizer::AddFrozen(size_t index, std::vector<State>& states) const {
  const Parameter* parameter = parameters_.parameters()[index];
  for (const auto& [held, values] : parameters_.FrozenParts(index)) {
    const Range range = parameters_.sharding().values() ? held : FrozenRange(*parameter);
    if (range.size() == 0) continue;
    states.push_back({parameter->name,
                      parameter,
                      {range},
                      values.narrow(0, range.begin - held.begin, range.size())});
  }
}

std::vector<ZeroOptimizer::State> ZeroOptimizer::ToSave() const {
  parameters_.AwaitValues();  // a master is, or is part of, a weight that may be on its way
  std::vector<State> states;
  for (size_t i = 0; i < parameters_.parameters().size(); ++i) {
    const Parameter* parameter = parameters_.parameters()[i];
    if (!Saves(i)) continue;
    if (!parameter->trainable) {
      if (parameter->role != ParameterRole::kBase) AddFrozen(i, states);
      continue;
    }
    const std::vector<Range> runs = adamw_.Runs(i);
    if (runs.empty()) continue;
    states.push_back({parameter->name, parameter, runs, adamw_.Master(i)});
    AddMoments(i, states);
  }
  return states;
}

std::vector<ZeroOptimizer::State> ZeroOptimizer::StatesOf(const std::string& prefix,
                                                          const at::Tensor& share,
                                                          bool to_save) const {
  std::vector<State> states;
  for (size_t i = 0; i < parameters_.parameters().size(); ++i) {
    const Parameter* parameter = parameters_.parameters()[i];
    if (!parameter->trainable || (to_save && !Saves(i))) continue;
    const std::vector<Range> runs = adamw_.Runs(i);
    if (!runs.empty())
      states.push_back({prefix + parameter->name, parameter, runs, adamw_.PartOf(share, i)});
  }
  return states;
}

std::vector<ZeroOptimizer::State> ZeroOptimizer::StatesOfValues(const std::string& prefix,
                                                                const at::Tensor& values) const {
  std::vector<State> states;
  for (size_t i = 0; i < parameters_.parameters().size(); ++i) {
    const Parameter* parameter = parameters_.parameters()[i];
    if (!parameter->trainable || !Saves(i)) continue;
    const std::vector<Range> runs = adamw_.Runs(i);
    if (runs.empty()) continue;
    const int64_t offset = parameters_.gradient_offset(i);
    std::vector<at::Tensor> parts;
    for (const Range& run : runs) parts.push_back(values.narrow(0, offset + run.begin, run.size()));
    const auto make = [parts] { return parts.size() == 1 ? parts.front() : at::cat(parts); };
    int64_t numel = 0;
    for (const Range& run : runs) numel += run.size();
    states.push_back({prefix + parameter->name, parameter, runs,
                      LazyTensor({numel}, values.scalar_type(), make)});
  }
  return states;
}

}  // namespace equipoise
