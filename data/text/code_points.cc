#include "data/text/code_points.h"

#include <algorithm>

#include "data/text/unicode_tables.h"
#include "data/text/utf8.h"

namespace equipoise {
namespace {

template <class Visit>
void ForEachRun(std::string_view runs, const Visit& visit) {
  uint32_t begin = 0;
  for (size_t i = 0; i < runs.size();) {
    const size_t number = kRunLetters.find(runs[i++]);
    uint32_t length = 0;
    for (; i < runs.size() && runs[i] >= '0' && runs[i] <= '9'; ++i)
      length = length * 10 + static_cast<uint32_t>(runs[i] - '0');
    const uint32_t end = begin + std::max<uint32_t>(length, 1);
    visit(begin, end, static_cast<uint8_t>(number));
    begin = end;
  }
}

// Adds the runs whose name, a word of `names`, satisfies `wanted`; false when none does.
template <class Wanted>
bool AddNamed(std::string_view names, std::string_view runs, const Wanted& wanted,
              CodePointSet& set) {
  std::vector<bool> taken;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(' ', begin), names.size());
    taken.push_back(wanted(names.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (std::find(taken.begin(), taken.end(), true) == taken.end()) return false;
  ForEachRun(runs, [&](uint32_t begin, uint32_t end, uint8_t number) {
    if (taken[number]) set.Add(begin, end);
  });
  return true;
}

// Reader of the numbers of tables of parts.
class NumberReader {
 public:
  explicit NumberReader(std::string_view text) : text_(text) {}
  bool AtEnd() const { return at_ == text_.size(); }
  uint32_t Next() {
    uint32_t value = 0;
    while (text_[at_] >= 'a') value = (value + static_cast<uint32_t>(text_[at_++] - 'a')) * 26;
    return value + static_cast<uint32_t>(text_[at_++] - 'A');
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

void CodePointSet::Add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
}

std::vector<CodePointRange> CodePointSet::Ranges() const {
  std::vector<CodePointRange> sorted = ranges_;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<CodePointRange> joined;
  for (const CodePointRange& range : sorted) {
    if (range.begin >= range.end) continue;
    if (!joined.empty() && range.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet rest;
  uint32_t begin = 0;
  for (const CodePointRange& range : Ranges()) {
    rest.Add(begin, range.begin);
    begin = range.end;
  }
  rest.Add(begin, kCodePoints);
  return rest;
}

CodePointTable::CodePointTable() { block_of_.fill(UniformBlock(0)); }

CodePointTable::CodePointTable(std::string_view runs) : CodePointTable() {
  ForEachRun(runs, [&](uint32_t begin, uint32_t end, uint8_t number) {
    if (number != 0) Set(begin, end, number);
  });
}

uint16_t CodePointTable::UniformBlock(uint8_t value) {
  if (uniform_[value] == 0) {
    blocks_.resize(blocks_.size() + 256, value);
    shared_.push_back(true);
    uniform_[value] = static_cast<uint16_t>(shared_.size());
  }
  return static_cast<uint16_t>(uniform_[value] - 1);
}

uint8_t* CodePointTable::OwnBlock(size_t index) {
  if (shared_[block_of_[index]]) {
    const uint8_t value = blocks_[block_of_[index] * size_t{256}];
    blocks_.resize(blocks_.size() + 256, value);
    block_of_[index] = static_cast<uint16_t>(shared_.size());
    shared_.push_back(false);
  }
  return blocks_.data() + block_of_[index] * size_t{256};
}

void CodePointTable::Set(uint32_t begin, uint32_t end, uint8_t value) {
  while (begin < end) {
    const size_t index = begin >> 8;
    const uint32_t first = begin & 0xFF;
    const uint32_t last = std::min<uint32_t>(256, first + (end - begin));
    if (first == 0 && last == 256) {
      block_of_[index] = UniformBlock(value);
    } else {
      std::fill_n(OwnBlock(index) + first, last - first, value);
    }
    begin += last - first;
  }
}

void ForEachParts(std::string_view table,
                  const std::function<void(uint32_t, bool, const std::vector<uint32_t>&)>& visit) {
  NumberReader reader(table);
  uint32_t point = 0;
  while (!reader.AtEnd()) {
    point += reader.Next();
    const uint32_t count_and_flag = reader.Next();
    std::vector<uint32_t> parts;
    for (uint32_t i = 0; i < count_and_flag / 2; ++i) parts.push_back(reader.Next());
    visit(point, count_and_flag % 2 != 0, parts);
  }
}

std::optional<CodePointSet> PropertySet(std::string_view name) {
  CodePointSet set;
  const auto is_category = [&](std::string_view known) {
    return known == name || (name.size() == 1 && known.starts_with(name));
  };
  const auto is_script = [&](std::string_view known) { return known == name; };
  if (name == "numeric") return NonZeroSet(kNumericRuns);
  if (name == "bert_punctuation") return NonZeroSet(kBertPunctuationRuns);
  if (AddNamed(kCategoryNames, kCategoryRuns, is_category, set)) return set;
  if (name != "Unknown" && AddNamed(kScriptNames, kScriptRuns, is_script, set)) return set;
  return std::nullopt;
}

CodePointSet WhiteSpaceSet() {
  CodePointSet set;
  for (uint32_t c = 0; c <= 0x3000; ++c) {
    if (IsWhiteSpace(c)) set.Add(c, c + 1);
  }
  return set;
}

CodePointSet NonZeroSet(std::string_view runs) {
  CodePointSet set;
  ForEachRun(runs, [&](uint32_t begin, uint32_t end, uint8_t number) {
    if (number != 0) set.Add(begin, end);
  });
  return set;
}

}  // namespace equipoise
