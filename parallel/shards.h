#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace equipoise {

// Elements [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// How ranks share a flat buffer: it is cut into buckets of equal size, counted from its end (the
// first is what remains), and each bucket into as many slices as there are ranks. A rank's slices,
// one after the other in the order of the buckets, are its shard. LibTorch-free; every rank derives
// the same.
class Shards {
 public:
  // Slices begin and end at multiples of so many elements. Parameters begin there too, so vector
  // units see an element in the same place whatever the number of ranks, and squares are summed in
  // the same blocks.
  static constexpr int64_t kBlock = 64;
  // Buckets grow rather than become more, so that lists of slices stay short.
  static constexpr int64_t kMaxBuckets = 128;
  // The next size that `ranks` can share.
  static int64_t Padded(int64_t numel, int ranks);

  // One rank that holds everything, in one bucket.
  explicit Shards(int64_t numel) : Shards(numel, 1, numel) {}
  // Buckets of about `bucket_numel` elements. REQUIRES: numel == Padded(numel, ranks).
  Shards(int64_t numel, int ranks, int64_t bucket_numel);

  int ranks() const { return ranks_; }
  int64_t numel() const { return numel_; }
  size_t num_buckets() const { return buckets_.size(); }
  Range Bucket(size_t bucket) const { return buckets_[bucket]; }
  Range Slice(size_t bucket, int rank) const;
  // The bucket that holds an element. REQUIRES: 0 <= element < numel().
  size_t BucketOf(int64_t element) const;
  // Elements of a shard, the same for all ranks.
  int64_t shard_numel() const { return numel_ / ranks_; }
  // Where a bucket's slice begins in the shard.
  int64_t ShardOffset(size_t bucket) const { return buckets_[bucket].begin / ranks_; }

  // A piece of a shard.
  struct Run {
    int rank;
    Range flat;     // in the buffer
    int64_t local;  // where it begins in the shard
    bool operator==(const Run&) const = default;
  };
  // The pieces that make up a range of the buffer, ascending.
  std::vector<Run> RunsIn(Range range) const;
  // Those of one rank; they follow each other in its shard.
  std::vector<Run> RunsIn(Range range, int rank) const;

 private:
  std::vector<Run> RunsIn(Range range, int first_rank, int end_rank) const;

  int ranks_;
  int64_t numel_;
  std::vector<Range> buckets_;
};

}  // namespace equipoise
