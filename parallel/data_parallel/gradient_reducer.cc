// Bucketed reduction that overlaps with backward, as in PyTorch's DistributedDataParallel (Li et
// al., arXiv 2006.15704). Collectives of a group match by the order of their calls, and backward
// may finish buckets in different orders on different ranks (a micro-batch without pictures never
// reaches the encoder). The invariant is therefore that bucket k starts only after bucket k - 1: a
// counter of missing parameters a bucket, and one index of the next bucket to start. Ready() costs
// O(buckets that hold a part of the parameter).

#include "parallel/data_parallel/gradient_reducer.h"

#include <fmt/format.h>

#include <algorithm>

#include "configs/base/error.h"

namespace equipoise {

GradientReducer::GradientReducer(FlatParameters& parameters, Communicator& group, Options options)
    : group_(group) {
  EQUIPOISE_CHECK(options.bucket_bytes > 0, "buckets of ", options.bucket_bytes, " bytes");
  at::Tensor& flat = parameters.gradient();
  if (!flat.defined()) return;
  const auto item = static_cast<int64_t>(flat.element_size());
  int64_t end = flat.numel();
  Bucket bucket;
  const auto close = [&](int64_t begin) {
    bucket.gradient = flat.slice(0, begin, end);
    bucket.missing = bucket.parameters;
    buckets_.push_back(std::move(bucket));
    bucket = Bucket();
    end = begin;
  };
  int64_t first = end;  // where the foremost parameter of the open bucket begins
  for (size_t i = parameters.parameters().size(); i-- > 0;) {
    const int64_t offset = parameters.gradient_offset(i);
    if (offset < 0) continue;
    if (bucket.parameters > 0 && (end - offset) * item > options.bucket_bytes) close(first);
    first = offset;
    ++bucket.parameters;
    places_[parameters.parameters()[i]] = {buckets_.size(), buckets_.size(), /*ready=*/false};
  }
  if (bucket.parameters > 0) close(0);
}

GradientReducer::GradientReducer(FlatParameters& parameters, Communicator& group,
                                 const Shards& shards, Communicator* copies)
    : group_(group), copies_(copies) {
  EQUIPOISE_CHECK(shards.ranks() == group.size(), shards.ranks(), " shards in ", group.name());
  for (size_t i = shards.num_buckets(); i-- > 0;) {
    const Range whole = shards.Bucket(i), mine = shards.Slice(i, group.rank());
    Bucket bucket;
    bucket.gradient = parameters.gradient().slice(0, whole.begin, whole.end);
    bucket.mine = parameters.gradient().slice(0, mine.begin, mine.end);
    buckets_.push_back(std::move(bucket));
  }
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    const Parameter& parameter = *parameters.parameters()[i];
    const int64_t begin = parameters.gradient_offset(i);
    if (begin < 0 || parameter.numel() == 0) continue;
    const size_t last = buckets_.size() - 1 - shards.BucketOf(begin);
    const size_t first = buckets_.size() - 1 - shards.BucketOf(begin + parameter.numel() - 1);
    places_[&parameter] = {first, last, /*ready=*/false};
    for (size_t b = first; b <= last; ++b) ++buckets_[b].parameters;
  }
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
}

void GradientReducer::Ready(const Parameter& parameter) {
  const auto place = places_.find(&parameter);
  if (place == places_.end()) return;
  EQUIPOISE_CHECK(!place->second.ready, parameter.name, " is ready twice in one step");
  place->second.ready = true;
  for (size_t b = place->second.first; b <= place->second.last; ++b) --buckets_[b].missing;
  StartReady();
}

void GradientReducer::Ready(const std::vector<Parameter*>& parameters) {
  for (const Parameter* parameter : parameters) Ready(*parameter);
}

void GradientReducer::StartReady() {
  const size_t before = started_;
  while (started_ < buckets_.size() && buckets_[started_].missing == 0) Start(buckets_[started_++]);
  if (started_ > before) group_.ProgressInBackground();  // the backward pass goes on
}

void GradientReducer::Start(Bucket& bucket) {
  bucket.start = Work::Clock::now();
  bucket.work = bucket.mine.defined()
                    ? group_.ReduceScatter(bucket.mine, bucket.gradient, ReduceOp::kSum)
                    : group_.AllReduce(bucket.gradient, ReduceOp::kSum);
}

// Each slice once its own group has summed it, in the order of the buckets, in which the sums end.
void GradientReducer::SumCopies() {
  for (Bucket& bucket : buckets_) {
    bucket.work.WaitOnStream();
    bucket.work = copies_->AllReduce(bucket.mine, ReduceOp::kSum);
  }
}

void GradientReducer::Finish() {
  while (started_ < buckets_.size()) Start(buckets_[started_++]);
  if (copies_ != nullptr) SumCopies();
  spans_.clear();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    bucket.work.Wait();
    spans_.push_back({fmt::format("reduce bucket {}", i),
                      static_cast<int64_t>(bucket.gradient.nbytes()), bucket.start,
                      bucket.work.FinishedAt()});
    bucket.work = Work();
    bucket.missing = bucket.parameters;
  }
  started_ = 0;
  for (auto& [parameter, place] : places_) place.ready = false;
}

}  // namespace equipoise
