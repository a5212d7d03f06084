#include "configs/error.h"
#include "data/regex.h"

namespace equipoise {
namespace {

// Copies a pattern from left to right, rewriting what means something else in PCRE2.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& source) : in_(pattern), source_(source) {}

  std::string Run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '\\') {
        Escape();
      } else if (in_class_) {
        InClass();
      } else {
        Outside();
      }
    }
    return out_;
  }

 private:
  char Peek(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool Follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void Copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  [[noreturn]] void Refuse(const std::string& what) const {
    throw DataError(
        source_ + ": the pattern '" + std::string(in_) + "' uses " + what +
        ", which is not supported; supported are the patterns of GPT-2, Qwen2, Llama 3, "
        "DeepSeek and others of their kind");
  }

  void Escape() {
    const char c = Peek(1);
    if (c == 'p' || c == 'P') return Property();
    // PCRE2's \s has U+180E beside White_Space.
    if (c == 's' || c == 'S') {
      out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      at_ += 2;
      return;
    }
    const bool letter_or_digit =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    constexpr std::string_view kSame = "rntfdDx";  // escapes with the same meaning in both
    if (c == '\0' || (letter_or_digit && kSame.find(c) == std::string_view::npos)) {
      Refuse(std::string("\\") + c);
    }
    Copy(2);
  }

  // Names of one or two letters are general categories in both engines; longer ones are scripts,
  // which PCRE2 reads as Script_Extensions unless told otherwise.
  void Property() {
    const size_t end = in_.find('}', at_);
    if (Peek(2) != '{' || end == std::string_view::npos) Refuse("\\p without a name in braces");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    out_ += in_.substr(at_, 3);
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    if (name.size() > 2) out_ += "sc:";
    out_ += name;
    out_ += '}';
    at_ = end + 1;
  }

  void InClass() {
    if (in_[at_] == '[') Refuse("a character class inside another");
    if (Follows("&&")) Refuse("an intersection of character classes");
    if (in_[at_] == ']') in_class_ = false;
    Copy(1);
  }

  void Outside() {
    const char c = in_[at_];
    if (c == '^' || c == '$') Refuse("an anchor");  // of a line in Oniguruma, of the text in PCRE2
    if (Follows("}+")) Refuse("a possessive {n,m}+");
    if (c == '(') return Group();
    if (c == '[') {
      in_class_ = true;
      Copy(Peek(1) == '^' ? 2 : 1);
      if (Peek(0) == ']') Refuse("an empty character class");
      return;
    }
    Copy(1);
  }

  void Group() {
    if (Follows("(*")) Refuse("a verb (*...)");
    if (!Follows("(?")) return Copy(1);
    for (const std::string_view kind : {"(?:", "(?i:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (Follows(kind)) return Copy(kind.size());
    }
    Refuse("a group of an unknown kind");
  }

  std::string_view in_;
  const std::string& source_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string TranslatePattern(std::string_view pattern, const std::string& source) {
  return Translator(pattern, source).Run();
}

}  // namespace equipoise
