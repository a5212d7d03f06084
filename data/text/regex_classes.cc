#include "data/text/regex_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "configs/base/error.h"
#include "data/text/utf8.h"

// The sets of code points in a pattern (literals, classes, properties) partition all code points:
// two are in one class when every set has both or neither. Partition refinement, set by set over
// sorted intervals, finds the classes; each becomes a byte, and each set a bracket expression of
// bytes. A pattern of more than 256 classes is refused; published ones have a few dozen.

namespace equipoise {
namespace {

constexpr size_t kMostClasses = 256;  // bytes

bool IsAsciiLetter(uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Adds a single code point, with its other forms in a group that ignores case.
void AddLiteral(uint32_t c, bool ignore_case, CodePointSet& set) {
  set.Add(c, c + 1);
  if (!ignore_case || !IsAsciiLetter(c)) return;
  set.Add(c ^ 0x20, (c ^ 0x20) + 1);
  if ((c | 0x20) == 's') set.Add(0x17F, 0x180);    // long s
  if ((c | 0x20) == 'k') set.Add(0x212A, 0x212B);  // Kelvin sign
}

// Parser of a pattern, from left to right, into text that is copied and the sets of code points in
// between.
class Parser {
 public:
  // `text`, copied unchanged, then one code point of `sets[set]` unless `set` is negative.
  struct Part {
    std::string text;
    int set = -1;
  };

  Parser(std::string_view pattern, const std::string& source) : in_(pattern), source_(source) {}

  void Run() {
    while (at_ < in_.size()) Next();
  }
  const std::vector<Part>& parts() const { return parts_; }
  const std::vector<CodePointSet>& sets() const { return sets_; }

  [[noreturn]] void Refuse(const std::string& what) const {
    throw DataError(fmt::format(
        "{}: the pattern '{}' uses {}, which is not supported; supported are the patterns of "
        "GPT-2, Qwen2, Llama 3, DeepSeek and others of their kind",
        source_, in_.substr(0, 200), what));
  }

 private:
  char Peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool Follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool ignores_case() const { return !groups_.empty() && groups_.back(); }
  void Copy(size_t count) {
    if (parts_.empty() || parts_.back().set >= 0) parts_.emplace_back();
    parts_.back().text += in_.substr(at_, count);
    at_ += count;
    last_literal_ = 0;
  }

  void PutSet(const CodePointSet& set) {
    std::vector<std::pair<uint32_t, uint32_t>> key;
    for (const CodePointRange& range : set.Ranges()) key.emplace_back(range.begin, range.end);
    const auto [found, added] = known_.try_emplace(key, static_cast<int>(sets_.size()));
    if (added) sets_.push_back(set);
    if (sets_.size() > kMostClasses) Refuse("more than 256 kinds of characters");
    if (parts_.empty() || parts_.back().set >= 0) parts_.emplace_back();
    parts_.back().set = found->second;
    last_literal_ = 0;
  }

  void PutLiteral(uint32_t c) {
    CheckCase(c);
    // Oniguruma lets these pairs match one letter that is not ASCII, such as the sharp s.
    const std::string pair = {static_cast<char>(last_literal_ | 0x20), static_cast<char>(c | 0x20)};
    if (ignores_case() && c < 0x80 && last_literal_ != 0) {
      for (const char* joined : {"ss", "st", "ff", "fi", "fl"}) {
        if (pair == joined) Refuse("'" + pair + "' in a group that ignores case");
      }
    }
    CodePointSet set;
    AddLiteral(c, ignores_case(), set);
    PutSet(set);
    last_literal_ = c < 0x80 ? c : 0;
  }

  void CheckCase(uint32_t c) const {
    if (ignores_case() && c >= 0x80) Refuse("a letter beyond ASCII in a group that ignores case");
  }

  void Next() {
    const char c = Peek();
    if (c == '\\') {
      CodePointSet set;
      if (const auto literal = Escape(set)) return PutLiteral(*literal);
      return PutSet(set);
    }
    if (c == '^' || c == '$') Refuse("an anchor");  // of a line in Oniguruma, of the text in PCRE2
    if (c == '(') return OpenGroup();
    if (c == '[') return Class();
    if (c == '{' && Repetition()) return;
    if (c == ')' && !groups_.empty()) groups_.pop_back();
    if (std::string_view("|)*+?").find(c) != std::string_view::npos) return Copy(1);
    if (c == '.') {
      CodePointSet line_end;
      line_end.Add('\n', '\n' + 1);
      ++at_;
      return PutSet(line_end.Complement());
    }
    PutLiteral(TakeCodePoint());
  }

  uint32_t TakeCodePoint() {
    const CodePoint point = ReadCodePoint(in_, at_);
    at_ += point.bytes;
    return point.value;
  }

  void OpenGroup() {
    if (Follows("(*")) Refuse("a verb (*...)");
    groups_.push_back(ignores_case() || Follows("(?i:"));
    if (!Follows("(?")) return Copy(1);
    // Case is a matter of the sets.
    if (Follows("(?i:")) return CopyAs("(?:", 4);
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (Follows(kind)) return Copy(kind.size());
    }
    Refuse("a group of an unknown kind");
  }

  void CopyAs(std::string_view text, size_t count) {
    Copy(0);
    parts_.back().text += text;
    at_ += count;
  }

  // {n}, {n,}, {,m}, {n,m}; anything else in braces is text.
  bool Repetition() {
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return false;
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    const size_t comma = body.find(',');
    const std::string_view low = body.substr(0, comma);
    const std::string_view high =
        comma == std::string_view::npos ? std::string_view() : body.substr(comma + 1);
    const auto digits = [](std::string_view text) {
      return text.find_first_not_of("0123456789") == std::string_view::npos;
    };
    if (!digits(low) || !digits(high) || (low.empty() && high.empty())) return false;
    const size_t length = end + 1 - at_;
    const char suffix = Peek(length);
    if (suffix == '+') Refuse("a possessive {n,m}+");
    if (suffix == '?' && comma == std::string_view::npos) Refuse("a lazy {n}?");
    if (low.empty()) {
      CopyAs("{0,", 0);
      CopyAs(high, length);
      CopyAs("}", 0);
    } else {
      Copy(length);
    }
    return true;
  }

  // Reads an escape: returns its code point, or fills `set`.
  std::optional<uint32_t> Escape(CodePointSet& set) {
    const char c = Peek(1);
    switch (c) {
      case 'p':
      case 'P':
        Property(set);
        return std::nullopt;
      case 's':
      case 'S':
        set = c == 's' ? WhiteSpaceSet() : WhiteSpaceSet().Complement();
        at_ += 2;
        return std::nullopt;
      case 'd':
      case 'D':
        set = c == 'd' ? *PropertySet("Nd") : PropertySet("Nd")->Complement();
        at_ += 2;
        return std::nullopt;
      case 'x':
        return HexEscape();
      default:
        break;
    }
    constexpr std::string_view kNames = "rntfav", kValues = "\r\n\t\f\a\v";
    const size_t named = kNames.find(c);
    const bool letter_or_digit = IsAsciiLetter(static_cast<uint8_t>(c)) || (c >= '0' && c <= '9');
    if (c == '\0' || (letter_or_digit && named == std::string_view::npos)) {
      Refuse(std::string("\\") + c);
    }
    ++at_;
    if (named == std::string_view::npos) return TakeCodePoint();
    ++at_;
    return static_cast<uint8_t>(kValues[named]);
  }

  // \x7F or \x{1F600}.
  uint32_t HexEscape() {
    const bool braces = Peek(2) == '{';
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t most = braces ? 6 : 2;
    size_t end = begin;
    uint32_t value = 0;
    for (; end < in_.size() && end < begin + most; ++end) {
      const char c = in_[end];
      const bool digit = c >= '0' && c <= '9';
      if (!digit && !((c | 0x20) >= 'a' && (c | 0x20) <= 'f')) break;
      value = value * 16 + static_cast<uint32_t>(digit ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    const bool closed = !braces || (end < in_.size() && in_[end] == '}');
    // Two digits are a byte of UTF-8 in Oniguruma.
    const bool fits = braces ? value < kCodePoints : value < 0x80;
    if (end == begin || !closed || !fits) Refuse("\\x with anything but a code point");
    at_ = end + (braces ? 1 : 0);
    return value;
  }

  void Property(CodePointSet& set) {
    const size_t end = in_.find('}', at_);
    if (Peek(2) != '{' || end == std::string_view::npos) Refuse("\\p without a name in braces");
    if (ignores_case()) Refuse("\\p in a group that ignores case");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    const bool negated = name.starts_with('^') != (Peek(1) == 'P');
    if (name.starts_with('^')) name.remove_prefix(1);
    const auto property = PropertySet(name);
    if (!property) Refuse(fmt::format("the property '{}'", name.substr(0, 40)));
    set = negated ? property->Complement() : *property;
    at_ = end + 1;
  }

  void Class() {
    ++at_;
    const bool negated = Peek() == '^';
    if (negated) ++at_;
    if (Peek() == ']') Refuse("an empty character class");
    CodePointSet set;
    while (Peek() != ']' || at_ >= in_.size()) {
      if (at_ >= in_.size())
        throw DataError(
            fmt::format("{}: the pattern '{}' is broken: a "
                        "character class is not closed",
                        source_, in_.substr(0, 200)));
      ClassItem(set);
    }
    ++at_;
    PutSet(negated ? set.Complement() : set);
  }

  // Reads a code point of a class; nullopt where a whole set was added instead.
  std::optional<uint32_t> ClassPoint(CodePointSet& set) {
    if (Peek() == '[') Refuse("a character class inside another");
    if (Follows("&&")) Refuse("an intersection of character classes");
    if (Peek() != '\\') return TakeCodePoint();
    if (Peek(1) == 'b') Refuse("\\b");
    CodePointSet escaped;
    const auto point = Escape(escaped);
    set.Add(escaped);
    return point;
  }

  void ClassItem(CodePointSet& set) {
    const auto low = ClassPoint(set);
    if (!low) return;
    if (Peek() != '-' || Peek(1) == ']') {
      CheckCase(*low);
      return AddLiteral(*low, ignores_case(), set);
    }
    ++at_;
    const auto high = ClassPoint(set);
    if (!high || *high < *low) Refuse("a range that runs backwards or to a set");
    CheckCase(*high);
    if (!ignores_case()) return set.Add(*low, *high + 1);
    for (uint32_t c = *low; c <= *high; ++c) AddLiteral(c, true, set);
  }

  std::string_view in_;
  const std::string& source_;
  size_t at_ = 0;
  std::vector<Part> parts_;
  std::vector<CodePointSet> sets_;
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, int> known_;  // ranges -> set
  std::vector<bool> groups_;  // for each open group: ignores case
  uint32_t last_literal_ = 0;
};

// Partition of the code points into intervals that each set takes whole or not at all, and of the
// intervals into classes.
class Partition {
 public:
  explicit Partition(const std::vector<CodePointSet>& sets) {
    for (const CodePointSet& set : sets) ranges_.push_back(set.Ranges());
    begins_ = {0, kCodePoints};
    for (const auto& ranges : ranges_) {
      for (const CodePointRange& range : ranges) {
        begins_.push_back(range.begin);
        begins_.push_back(range.end);
      }
    }
    std::sort(begins_.begin(), begins_.end());
    begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
    class_of_.assign(begins_.size() - 1, 0);
    for (const auto& ranges : ranges_) Refine(ranges);
  }

  size_t classes() const { return classes_; }

  CodePointTable Table() const {
    CodePointTable table;
    for (size_t i = 0; i < class_of_.size(); ++i)
      table.Set(begins_[i], begins_[i + 1], static_cast<uint8_t>(class_of_[i]));
    return table;
  }

  // The classes of a set, as PCRE2's bracket expression over bytes.
  std::string Bracket(size_t set) const {
    std::vector<bool> inside(classes_);
    ForEachInterval(ranges_[set], [&](size_t interval) { inside[class_of_[interval]] = true; });
    std::string text = "[";
    for (size_t i = 0; i < classes_; ++i) {
      if (inside[i]) text += fmt::format("\\x{:02x}", i);
    }
    return text.size() == 1 ? "[^\\x00-\\xff]" : text + "]";
  }

 private:
  template <class Visit>
  void ForEachInterval(const std::vector<CodePointRange>& ranges, const Visit& visit) const {
    for (const CodePointRange& range : ranges) {
      const auto first = std::lower_bound(begins_.begin(), begins_.end(), range.begin);
      for (auto at = first; *at < range.end; ++at) visit(static_cast<size_t>(at - begins_.begin()));
    }
  }

  // Splits classes so that each is inside `ranges` or outside.
  void Refine(const std::vector<CodePointRange>& ranges) {
    std::vector<size_t> all(classes_), inside(classes_);
    for (const size_t number : class_of_) ++all[number];
    ForEachInterval(ranges, [&](size_t interval) { ++inside[class_of_[interval]]; });
    std::map<size_t, size_t> split;
    for (size_t number = 0, count = classes_; number < count; ++number) {
      if (inside[number] > 0 && inside[number] < all[number]) split[number] = classes_++;
    }
    ForEachInterval(ranges, [&](size_t interval) {
      const auto found = split.find(class_of_[interval]);
      if (found != split.end()) class_of_[interval] = found->second;
    });
  }

  std::vector<std::vector<CodePointRange>> ranges_;  // of each set
  std::vector<uint32_t> begins_;                     // of the intervals, and the end
  std::vector<size_t> class_of_;                     // of each interval
  size_t classes_ = 1;
};

}  // namespace

BytePattern TranslatePattern(std::string_view pattern, const std::string& source) {
  Parser parser(pattern, source);
  parser.Run();
  const Partition partition(parser.sets());
  if (partition.classes() > kMostClasses) parser.Refuse("more than 256 kinds of characters");
  BytePattern result{"", partition.Table()};
  for (const Parser::Part& part : parser.parts()) {
    result.pattern += part.text;
    if (part.set >= 0) result.pattern += partition.Bracket(static_cast<size_t>(part.set));
  }
  return result;
}

}  // namespace equipoise
