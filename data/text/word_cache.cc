#include "data/text/word_cache.h"

#include <algorithm>

namespace equipoise {

bool WordCache::Find(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const {
  if (word.size() > kMaxWord) return false;
  Slot& slot = slots_[hash % kSlots];
  if (slot.busy.test_and_set(std::memory_order_acquire)) return false;
  const bool found = slot.count > 0 && std::string_view(slot.word.data(), slot.bytes) == word;
  if (found) ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
  slot.busy.clear(std::memory_order_release);
  return found;
}

void WordCache::Store(std::string_view word, uint64_t hash, const std::vector<int32_t>& ids,
                      size_t from) const {
  const size_t count = ids.size() - from;
  if (word.size() > kMaxWord || count == 0 || count > kMaxIds) return;
  Slot& slot = slots_[hash % kSlots];
  if (slot.busy.test_and_set(std::memory_order_acquire)) return;
  slot.bytes = static_cast<uint8_t>(word.size());
  slot.count = static_cast<uint8_t>(count);
  std::copy(word.begin(), word.end(), slot.word.begin());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(from), ids.end(), slot.ids.begin());
  slot.busy.clear(std::memory_order_release);
}

}  // namespace equipoise
