#include "data/records/json_array.h"

#include <fmt/format.h>

#include <utility>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"

namespace equipoise {

void ArrayScanner::Fail(const std::string& what) const {
  throw DataError(fmt::format("{}:{}:{}: {}", source_, line_, offset_ - line_begin_ + 1, what));
}

size_t ArrayScanner::SkipString(std::string_view block, size_t at) {
  for (; at < block.size(); ++at) {
    if (escaped_) {
      escaped_ = false;
    } else if (block[at] == '\\') {
      escaped_ = true;
    } else if (block[at] == '"') {
      in_string_ = false;
      return at + 1;
    } else if (block[at] == '\n') {
      // No string of JSON holds one: it stands here so that the lines behind are counted right.
      ++line_;
      line_begin_ = offset_ + at + 1;
    }
  }
  return at;
}

void ArrayScanner::StepInside(char c) {
  switch (c) {
    case '"':
      in_string_ = true;
      break;
    case '{':
    case '[':
      ++depth_;
      break;
    case '}':
    case ']':
      if (--depth_ > 0) break;
      records_.back().bytes = offset_ + 1 - records_.back().offset;
      state_ = State::kBehind;
      break;
    default:
      break;
  }
}

void ArrayScanner::Step(char c) {
  if (c == '\n') {
    ++line_;
    line_begin_ = offset_ + 1;
    return;
  }
  if (state_ == State::kInside) return StepInside(c);
  if (c == ' ' || c == '\t' || c == '\r') return;
  const std::string shown = "'" + ShownText(std::string_view(&c, 1)) + "'";
  switch (state_) {
    case State::kBegin:
      if (c != '[') Fail(shown + " in place of the '[' of an array");
      state_ = State::kFirst;
      return;
    case State::kFirst:
    case State::kElement:
      if (c == ']' && state_ == State::kFirst) {
        state_ = State::kEnd;
        return;
      }
      if (c == ']')
        Fail(fmt::format("a comma behind record {}, the last one; remove it", records_.size()));
      if (c != '{') Fail(shown + " in place of the '{' of a record; an array of objects is needed");
      records_.push_back({offset_, 0});
      record_line_ = line_;
      depth_ = 1;
      state_ = State::kInside;
      return;
    case State::kBehind:
      if (c != ',' && c != ']')
        Fail(fmt::format("{} behind record {}; a comma or the array's ']' is needed", shown,
                         records_.size()));
      state_ = c == ',' ? State::kElement : State::kEnd;
      return;
    default:
      Fail(shown + " behind the end of the array; remove what follows it");
  }
}

void ArrayScanner::Feed(std::string_view block) {
  const uint64_t begin = offset_;
  for (size_t at = 0; at < block.size();) {
    if (in_string_) {
      offset_ = begin;  // SkipString() adds its own place
      at = SkipString(block, at);
      continue;
    }
    offset_ = begin + at;
    Step(block[at]);
    ++at;
  }
  offset_ = begin + block.size();
}

std::vector<RecordExtent> ArrayScanner::Finish() {
  if (state_ == State::kInside) {
    Fail(
        fmt::format("the file ends inside record {}, which begins in line {}; it is cut, or a "
                    "bracket or quotation mark is missing",
                    records_.size(), record_line_));
  }
  if (state_ != State::kEnd) Fail("the file ends before the array's ']'; it is cut");
  return std::move(records_);
}

}  // namespace equipoise
