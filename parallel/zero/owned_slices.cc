// Copies of an encoder lie on pipeline ranks that hold different layers of the language model, so
// buckets that are counted from the end of their buffers begin in different places. Those within
// the copied elements are counted from the front: equal on all copies, and of a size that data
// ranks and copies can both divide. As in the distributed optimizer of Megatron-LM, over which
// Optimus (arXiv 2408.03505) runs, the state of an encoder is then shared out over all that hold
// it.

#include "parallel/zero/owned_slices.h"

#include <algorithm>

#include "configs/base/error.h"
#include "parallel/flat_alignment.h"

namespace equipoise {

Shards ShardsOfCopied(int64_t numel, int ranks, int64_t bucket_numel, CopiedElements& copied) {
  const int64_t most = Shards::kMaxBuckets, unit = Shards::Padded(1, ranks * copied.copies);
  const int64_t least = std::max(bucket_numel, (copied.numel + most - 1) / most);
  const int64_t count = std::max<int64_t>(1, copied.numel / std::max(least, unit));
  const int64_t size = copied.numel / count / unit * unit;
  copied.buckets = size > 0 ? static_cast<size_t>(count) : 0;
  std::vector<int64_t> sizes(copied.buckets, size);
  const Shards rest(numel - static_cast<int64_t>(copied.buckets) * size, ranks, bucket_numel);
  for (size_t bucket = 0; bucket < rest.num_buckets(); ++bucket) {
    sizes.push_back(rest.Bucket(bucket).size());
  }
  return {ranks, sizes};
}

OwnedSlices::OwnedSlices(const Shards& shards, int rank, const CopiedElements& copied)
    : buffer_numel_(shards.numel()) {
  const auto own = [&](Range range) {
    if (range.size() <= 0) return;
    runs_.push_back({rank, range, numel_});
    numel_ += range.size();
  };
  for (size_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
    const Range slice = shards.Slice(bucket, rank);
    if (!copied.shared()) {
      own(slice);
    } else if (bucket < copied.buckets) {
      const int64_t share = slice.size() / copied.copies;
      EQUIPOISE_CHECK(share % kFlatAlignment == 0, share, " elements");
      own({slice.begin + copied.index * share, slice.begin + (copied.index + 1) * share});
    } else {
      const int64_t begin = copied.index == 0 ? 0 : copied.numel;
      own({std::max(slice.begin, begin), slice.end});
    }
  }
}

std::vector<Shards::Run> OwnedSlices::RunsIn(Range range) const {
  std::vector<Shards::Run> runs;
  auto run = std::partition_point(runs_.begin(), runs_.end(), [&](const Shards::Run& each) {
    return each.flat.end <= range.begin;
  });
  for (; run != runs_.end() && run->flat.begin < range.end; ++run) {
    const Range flat{std::max(run->flat.begin, range.begin), std::min(run->flat.end, range.end)};
    if (flat.begin >= flat.end) continue;
    runs.push_back({run->rank, flat, run->local + flat.begin - run->flat.begin});
  }
  return runs;
}

}  // namespace equipoise
