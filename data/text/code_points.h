#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace equipoise {

constexpr uint32_t kCodePoints = 0x110000;

struct CodePointRange {
  uint32_t begin = 0, end = 0;  // end excluded
};

// A set of code points.
class CodePointSet {
 public:
  void Add(uint32_t begin, uint32_t end) { ranges_.push_back({begin, end}); }
  void Add(const CodePointSet& other);
  CodePointSet Complement() const;
  // The set as ascending ranges that do not touch.
  std::vector<CodePointRange> Ranges() const;

 private:
  std::vector<CodePointRange> ranges_;  // in any order
};

// A table of one byte for each code point, in two stages: 9 KiB, and 256 bytes for each block of
// code points that differ.
class CodePointTable {
 public:
  CodePointTable();  // all 0
  // The table of runs of unicode_tables.h.
  explicit CodePointTable(std::string_view runs);
  void Set(uint32_t begin, uint32_t end, uint8_t value);
  uint8_t operator[](uint32_t code_point) const {
    return blocks_[block_of_[code_point >> 8] * size_t{256} + (code_point & 0xFF)];
  }

 private:
  uint16_t UniformBlock(uint8_t value);
  // The block of 256 code points for writing, made where they share one with others.
  uint8_t* OwnBlock(size_t index);

  std::vector<uint8_t> blocks_;
  std::array<uint16_t, kCodePoints / 256> block_of_{};
  std::array<uint16_t, 256> uniform_{};  // for each value: its block + 1, or 0
  std::vector<bool> shared_;             // for each block
};

// Visits the entries of a table of parts of unicode_tables.h: code point, whether NFC composes the
// parts again, and the parts.
void ForEachParts(std::string_view table,
                  const std::function<void(uint32_t, bool, const std::vector<uint32_t>&)>& visit);

// Code points of a general category (L, Lu ...) or a script (Han ...) by its name, of `numeric`,
// which the Digits pre-tokenizer cuts out, or of `bert_punctuation`, which BertPreTokenizer does.
// nullopt for a name that is not in the tables.
std::optional<CodePointSet> PropertySet(std::string_view name);
// Code points of Unicode's White_Space property.
CodePointSet WhiteSpaceSet();
// Code points whose number in runs of unicode_tables.h is not 0.
CodePointSet NonZeroSet(std::string_view runs);

}  // namespace equipoise
