#pragma once

#include <cstdint>
#include <vector>

namespace equipoise {

// Groups in buckets of a small whole number, in each the last one in first. Every operation looks
// at a few machine words, whatever the number of groups. Queues may share `next` (one entry a
// group, owned by the caller) as long as no group is in two of them.
class GroupQueue {
 public:
  GroupQueue(int64_t buckets, std::vector<int32_t>* next);

  void Push(int64_t bucket, int64_t group);
  // The highest bucket up to `most` that holds a group, or -1.
  int64_t HighestAtMost(int64_t most) const;
  int64_t Highest() const { return num_groups_ == 0 ? -1 : HighestAtMost(std::ssize(top_) - 1); }
  // Takes a group out. REQUIRES: the bucket holds one.
  int64_t Pop(int64_t bucket);

 private:
  std::vector<int32_t> top_;        // of each bucket, or -1
  std::vector<uint64_t> occupied_;  // a bit a bucket
  std::vector<int32_t>* next_;      // the group below, or -1
  int64_t num_groups_ = 0;
};

}  // namespace equipoise
