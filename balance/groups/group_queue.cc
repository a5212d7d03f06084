#include "balance/groups/group_queue.h"

#include <bit>
#include <cstddef>

namespace equipoise {

GroupQueue::GroupQueue(int64_t buckets, std::vector<int32_t>* next)
    : top_(static_cast<size_t>(buckets), -1),
      occupied_((static_cast<size_t>(buckets) + 63) / 64, 0),
      next_(next) {}

void GroupQueue::Push(int64_t bucket, int64_t group) {
  int32_t& top = top_[static_cast<size_t>(bucket)];
  (*next_)[static_cast<size_t>(group)] = top;
  top = static_cast<int32_t>(group);
  occupied_[static_cast<size_t>(bucket / 64)] |= uint64_t{1} << (bucket % 64);
  ++num_groups_;
}

int64_t GroupQueue::HighestAtMost(int64_t most) const {
  if (most < 0) return -1;
  int64_t word = most / 64;
  uint64_t bits = occupied_[static_cast<size_t>(word)] & (~uint64_t{0} >> (63 - most % 64));
  while (bits == 0) {
    if (word == 0) return -1;
    bits = occupied_[static_cast<size_t>(--word)];
  }
  return word * 64 + 63 - std::countl_zero(bits);
}

int64_t GroupQueue::Pop(int64_t bucket) {
  int32_t& top = top_[static_cast<size_t>(bucket)];
  const int32_t group = top;
  top = (*next_)[static_cast<size_t>(group)];
  if (top < 0) occupied_[static_cast<size_t>(bucket / 64)] &= ~(uint64_t{1} << (bucket % 64));
  --num_groups_;
  return group;
}

}  // namespace equipoise
