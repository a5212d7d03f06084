#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

namespace equipoise {

// Cache of the ids of short words: a direct-mapped table of fixed size. The latest word of a slot
// wins; a thread that finds a slot busy skips the cache, so nothing ever waits. Thread-safe.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  // Appends the ids of `word` and returns true when they are known.
  bool Find(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const;
  // Stores ids[from..] as those of `word`, when both are short enough.
  void Store(std::string_view word, uint64_t hash, const std::vector<int32_t>& ids,
             size_t from) const;

  static constexpr size_t kMaxWord = 29;

 private:
  static constexpr size_t kSlots = 1 << 14;
  static constexpr size_t kMaxIds = 8;

  struct alignas(64) Slot {
    std::atomic_flag busy;
    uint8_t bytes = 0;
    uint8_t count = 0;  // 0 = the slot is free
    std::array<char, kMaxWord> word;
    std::array<int32_t, kMaxIds> ids;
  };

  mutable std::vector<Slot> slots_;
};

}  // namespace equipoise
