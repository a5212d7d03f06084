#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace equipoise {

// `left` and `right` become `merged`: tokens of a vocabulary.
struct BpeMerge {
  int32_t left, right, merged;
};

// The merges of BPE by the pair of tokens that they join: a hash table with open addressing, as a
// word asks for many pairs and most are none.
class MergeTable {
 public:
  struct Target {
    uint32_t rank = kNoRank;
    int32_t merged = -1;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  explicit MergeTable(size_t merges);

  // Of equal pairs the last one counts. REQUIRES: no more than `merges` pairs; ids are not
  // negative.
  void Set(int32_t left, int32_t right, Target target);
  // The rank is kNoRank where no merge joins the two.
  Target Find(int32_t left, int32_t right) const {
    return slots_[Place(KeyOf(left, right))].target;
  }

 private:
  struct Slot {
    uint64_t key = UINT64_MAX;  // free: no pair has this key
    Target target;
  };

  static uint64_t KeyOf(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // The slot of a key, or the free one where it would be.
  size_t Place(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    // The upper bits of a product depend on all bits of the key.
    size_t at = (key * 0x9E3779B97F4A7C15) >> shift_;
    while (slots_[at].key != key && slots_[at].key != UINT64_MAX) at = (at + 1) & mask;
    return at;
  }

  int shift_;
  std::vector<Slot> slots_;  // a power of two of them, half of which at least are free
};

}  // namespace equipoise
