#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/record_reader.h"

namespace equipoise {

// Scanner for the extents of the objects in a JSON array, fed block by block. Reads strings and
// brackets alone, so that no value is built: what is wrong inside an object shows when it is parsed
// as a record. Memory: 16 bytes an element.
class ArrayScanner {
 public:
  // `source` for messages; `offset` of the first byte that is fed.
  explicit ArrayScanner(std::string source, uint64_t offset = 0)
      : source_(std::move(source)), offset_(offset), line_begin_(offset) {}
  // Both throw DataError "source:line:column: what" where the array is not one of objects, or is
  // not closed.
  void Feed(std::string_view block);
  std::vector<RecordExtent> Finish();

 private:
  enum class State { kBegin, kFirst, kElement, kInside, kBehind, kEnd };
  // The place in `block` behind the string that `at` lies in, or the block's end.
  size_t SkipString(std::string_view block, size_t at);
  void Step(char c);
  void StepInside(char c);
  [[noreturn]] void Fail(const std::string& what) const;

  std::string source_;
  uint64_t offset_;      // of the next byte
  uint64_t line_begin_;  // offset of its line
  int64_t line_ = 1;
  State state_ = State::kBegin;
  bool in_string_ = false, escaped_ = false;
  uint64_t depth_ = 0;  // of brackets within the element
  int64_t record_line_ = 0;
  std::vector<RecordExtent> records_;
};

}  // namespace equipoise
