#include "data/text/merge_table.h"

#include <algorithm>
#include <bit>

namespace equipoise {

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(std::max<size_t>(2 * merges, 2))) {
  shift_ = 64 - std::countr_zero(slots_.size());
}

void MergeTable::Set(int32_t left, int32_t right, Target target) {
  const uint64_t key = KeyOf(left, right);
  slots_[Place(key)] = {key, target};
}

}  // namespace equipoise
