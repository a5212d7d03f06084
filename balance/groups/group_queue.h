#pragma once

#include <cstdint>
#include <vector>

namespace equipoise {

// A bucket queue of groups: a stack of groups for each small integer. Operations read a few machine
// words, whatever the number of groups. Queues may share `next` (one entry a group, owned by the
// caller) as long as no group is in two of them.
class GroupQueue {
 public:
  GroupQueue(int64_t buckets, std::vector<int32_t>* next);

  void Push(int64_t bucket, int64_t group);
  // The highest bucket up to `most` that is not empty, or -1.
  int64_t HighestAtMost(int64_t most) const;
  int64_t Highest() const { return num_groups_ == 0 ? -1 : HighestAtMost(std::ssize(top_) - 1); }
  // Removes the group that was pushed last. REQUIRES: the bucket is not empty.
  int64_t Pop(int64_t bucket);

 private:
  std::vector<int32_t> top_;        // of each bucket's stack, or -1
  std::vector<uint64_t> occupied_;  // a bit for each bucket
  std::vector<int32_t>* next_;      // the group below each group, or -1
  int64_t num_groups_ = 0;
};

}  // namespace equipoise
