#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/code_points.h"

namespace equipoise {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Normalizer of text to a normal form of Unicode, by tables of our own (unicode_tables.h).
// Immutable, so threads share it.
class TextNormalizer {
 public:
  // Without a form, text is left unchanged. `source` begins messages.
  TextNormalizer(std::optional<NormalForm> form, std::string source);

  // Returns `text` (valid UTF-8) in the form. O(n log n), also for hostile runs of combining marks.
  // Throws TextError where the result is beyond four times the text and 64 KiB.
  std::string Run(std::string_view text) const;

 private:
  bool composes() const { return form_ == NormalForm::kNfc || form_ == NormalForm::kNfkc; }
  void ReadParts(std::string_view table);
  void MarkChanging();
  size_t FindChanging(std::string_view text, size_t at) const;
  // Appends the form of one stretch, which does not depend on the text around it.
  void AppendStretch(std::string_view stretch, std::string& out) const;
  void Decompose(uint32_t point, std::vector<uint32_t>& out) const;
  void OrderMarks(std::vector<uint32_t>& points) const;
  void Compose(std::vector<uint32_t>& points) const;
  uint32_t Composed(uint32_t first, uint32_t second) const;  // 0: these two are never one

  struct Parts {
    uint32_t begin, count;  // in parts_
  };
  std::optional<NormalForm> form_;
  std::string source_;
  CodePointTable combining_;
  // 1: the form changes this code point, or may change it because of those before it. Any other one
  // ends the stretch before it.
  CodePointTable changing_;
  std::vector<uint32_t> parts_;
  std::unordered_map<uint32_t, Parts> parts_of_;
  std::unordered_map<uint64_t, uint32_t> composed_;  // first << 32 | second
};

}  // namespace equipoise
