// Everything follows from one rule: slice r of a bucket belongs to rank r. Every bucket is a
// multiple of kFlatAlignment * ranks elements, so slices are of equal size and aligned. A shard is
// the concatenation of its slices; the offset of bucket b in it is b.begin / ranks. Look-ups are a
// binary search over the buckets.

#include "parallel/shards.h"

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/flat_alignment.h"

namespace equipoise {

static_assert(kFlatAlignment % Shards::kBlock == 0);

namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t Shards::Padded(int64_t numel, int ranks) { return RoundUp(numel, kFlatAlignment * ranks); }

Shards::Shards(int64_t numel, int ranks, int64_t bucket_numel) : ranks_(ranks), numel_(numel) {
  EQUIPOISE_CHECK(ranks > 0 && numel >= 0 && numel == Padded(numel, ranks), numel, " over ", ranks);
  const int64_t least = std::max({bucket_numel, (numel + kMaxBuckets - 1) / kMaxBuckets, kBlock});
  const int64_t size = Padded(least, ranks);
  for (int64_t end = numel; end > 0; end -= size) {
    buckets_.push_back({std::max<int64_t>(0, end - size), end});
  }
  std::reverse(buckets_.begin(), buckets_.end());
}

Shards::Shards(int ranks, const std::vector<int64_t>& bucket_sizes) : ranks_(ranks), numel_(0) {
  for (const int64_t size : bucket_sizes) {
    EQUIPOISE_CHECK(size >= 0 && size == Padded(size, ranks), size, " over ", ranks);
    buckets_.push_back({numel_, numel_ + size});
    numel_ += size;
  }
}

Range Shards::Slice(size_t bucket, int rank) const {
  const Range whole = buckets_[bucket];
  const int64_t size = whole.size() / ranks_;
  return {whole.begin + rank * size, whole.begin + (rank + 1) * size};
}

size_t Shards::BucketOf(int64_t element) const {
  EQUIPOISE_CHECK(0 <= element && element < numel_, element, " of ", numel_);
  const auto bucket = std::upper_bound(buckets_.begin(), buckets_.end(), element,
                                       [](int64_t at, const Range& b) { return at < b.end; });
  return static_cast<size_t>(bucket - buckets_.begin());
}

std::vector<Shards::Run> Shards::RunsIn(Range range) const { return RunsIn(range, 0, ranks_); }

std::vector<Shards::Run> Shards::RunsIn(Range range, int rank) const {
  return RunsIn(range, rank, rank + 1);
}

std::vector<Shards::Run> Shards::RunsIn(Range range, int first_rank, int end_rank) const {
  std::vector<Run> runs;
  for (size_t index = range.size() > 0 ? BucketOf(range.begin) : num_buckets();
       index < num_buckets() && Bucket(index).begin < range.end; ++index) {
    for (int rank = first_rank; rank < end_rank; ++rank) {
      const Range slice = Slice(index, rank);
      const Range flat{std::max(slice.begin, range.begin), std::min(slice.end, range.end)};
      if (flat.begin >= flat.end) continue;
      runs.push_back({rank, flat, ShardOffset(index) + flat.begin - slice.begin});
    }
  }
  return runs;
}

}  // namespace equipoise
