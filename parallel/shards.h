#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace equipoise {

// A range of elements, [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The split of a flat buffer over ranks (ZeRO): the buffer is cut into buckets, and each bucket
// into one slice a rank. Buckets are given, or of equal size, counted from the buffer's end (the
// first bucket is what remains). A rank's slices, concatenated in the order of the buckets, are its
// shard. Pure arithmetic, free of LibTorch; every rank derives the same.
class Shards {
 public:
  // Elements whose squares are summed as one block (parallel/zero/square_nodes.h); a divisor of
  // kFlatAlignment, to which slices and parameters are aligned. The blocks, and an element's place
  // in a vector register, are thus the same whatever the number of ranks.
  static constexpr int64_t kBlock = 64;
  // Limit on the number of buckets; larger buffers have larger buckets.
  static constexpr int64_t kMaxBuckets = 128;
  // `numel` rounded up to a size that `ranks` ranks can share evenly.
  static int64_t Padded(int64_t numel, int ranks);

  // One rank that holds everything, in one bucket.
  explicit Shards(int64_t numel) : Shards(numel, 1, numel) {}
  // Buckets of about `bucket_numel` elements. REQUIRES: numel == Padded(numel, ranks).
  Shards(int64_t numel, int ranks, int64_t bucket_numel);
  // Buckets of these sizes, in order; some may be empty. REQUIRES: each is Padded().
  Shards(int ranks, const std::vector<int64_t>& bucket_sizes);

  int ranks() const { return ranks_; }
  int64_t numel() const { return numel_; }
  size_t num_buckets() const { return buckets_.size(); }
  Range Bucket(size_t bucket) const { return buckets_[bucket]; }
  Range Slice(size_t bucket, int rank) const;
  // The bucket that holds an element. REQUIRES: 0 <= element < numel().
  size_t BucketOf(int64_t element) const;
  // Elements of a shard, the same for all ranks.
  int64_t shard_numel() const { return numel_ / ranks_; }
  // Offset of a bucket's slice in the shard.
  int64_t ShardOffset(size_t bucket) const { return buckets_[bucket].begin / ranks_; }

  // A contiguous piece of one rank's shard.
  struct Run {
    int rank;
    Range flat;     // in the buffer
    int64_t local;  // offset in the shard
    bool operator==(const Run&) const = default;
  };
  // The pieces that make up a range of the buffer, ascending.
  std::vector<Run> RunsIn(Range range) const;
  // The pieces of one rank; they are contiguous in its shard.
  std::vector<Run> RunsIn(Range range, int rank) const;

 private:
  std::vector<Run> RunsIn(Range range, int first_rank, int end_rank) const;

  int ranks_;
  int64_t numel_;
  std::vector<Range> buckets_;
};

}  // namespace equipoise
