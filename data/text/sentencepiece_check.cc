#include "data/text/sentencepiece_check.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Takes a number of protocol buffers' variable length; nothing where the bytes end before it does.
std::optional<uint64_t> TakeVarint(std::string_view& bytes) {
  uint64_t number = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return number;
  }
  return std::nullopt;
}

// Calls use(bytes) for each field of that number that has bytes: a text or a message.
void ForFields(std::string_view message, uint64_t field,
               const std::function<void(std::string_view)>& use) {
  enum Wire : uint8_t { kVarint, k64Bits, kBytes, k32Bits = 5 };
  while (const auto key = TakeVarint(message)) {
    const uint64_t wire = *key & 7;
    uint64_t size = wire == k64Bits ? 8 : wire == k32Bits ? 4 : 0;
    if (wire == kVarint && !TakeVarint(message)) return;
    if (wire == kBytes) {
      const auto length = TakeVarint(message);
      if (!length) return;
      size = *length;
    } else if (wire != kVarint && size == 0) {
      return;  // no kind that these files have
    }
    if (size > message.size()) return;
    if (wire == kBytes && *key >> 3 == field) use(message.substr(0, size));
    message.remove_prefix(size);
  }
}

// A trie of darts-clone (a unit of 32 bits a node: charsmap.cc), and the texts that it leads to.
class Trie {
 public:
  // Whether no search in it, for any bytes, leaves it or the texts.
  static bool IsSound(std::string_view charsmap) {
    Trie trie;
    if (charsmap.size() < 4) return charsmap.empty();
    const uint32_t size = NumberAt(charsmap, 0);
    if (size % 4 != 0 || size == 0 || size > charsmap.size() - 4) return false;
    for (size_t at = 4; at < 4 + size; at += 4) trie.units_.push_back(NumberAt(charsmap, at));
    const std::string_view texts = charsmap.substr(4 + size);
    trie.texts_ = texts.size();
    return !texts.empty() && texts.back() == '\0' && trie.Reaches();
  }

 private:
  static uint32_t NumberAt(std::string_view bytes, size_t at) {
    uint32_t number = 0;
    for (size_t i = 4; i-- > 0;) number = number << 8 | static_cast<uint8_t>(bytes[at + i]);
    return number;
  }
  static size_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

  // Follows all edges from the root.
  bool Reaches() const {
    std::vector<bool> seen(units_.size());
    std::vector<size_t> nodes = {0};
    seen[0] = true;
    while (!nodes.empty()) {
      const size_t node = nodes.back();
      nodes.pop_back();
      const size_t children = node ^ OffsetOf(units_[node]);
      if ((children | 0xff) >= units_.size()) return false;
      const bool has_value = (units_[node] >> 8 & 1) != 0;
      if (node > 0 && has_value && (units_[children] & 0x7fffffff) >= texts_) return false;
      for (uint32_t byte = 0; byte < 256; ++byte) {  // a text may have NUL
        const size_t child = children ^ byte;
        if ((units_[child] & 0x800000ff) != byte || seen[child]) continue;
        seen[child] = true;
        nodes.push_back(child);
      }
    }
    return true;
  }

  std::vector<uint32_t> units_;
  size_t texts_ = 0;
};

}  // namespace

void CheckCharsmaps(std::string_view model, const std::string& source) {
  constexpr uint64_t kNormalizer = 3, kDenormalizer = 5, kCharsmap = 2;
  for (const uint64_t part : {kNormalizer, kDenormalizer}) {
    ForFields(model, part, [&](std::string_view spec) {
      ForFields(spec, kCharsmap, [&](std::string_view charsmap) {
        if (!Trie::IsSound(charsmap))
          throw DataError(source + ": precompiled_charsmap is damaged; download the file again");
      });
    });
  }
}

}  // namespace equipoise
