#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace equipoise {

// A pattern of tokenizer.json (written for Oniguruma) compiled by PCRE2 with JIT, UTF and Unicode
// properties. Immutable, so threads share it; each matches through a Matcher of its own.
class Regex {
 public:
  struct Match {
    size_t begin = 0, end = 0;
  };

  // Scratch space of one thread. The regex must outlive it.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    // The first match at or behind `start`, a character's boundary. REQUIRES: `text` is valid
    // UTF-8. Throws DataError when the match exceeds the limits on steps and memory.
    std::optional<Match> Find(std::string_view text, size_t start);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // Throws DataError that begins with `source:` for a pattern that is broken, matches the empty
  // text, or uses a construct that the two engines read differently.
  Regex(std::string_view pattern, const std::string& source);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

// `pattern` in PCRE2's syntax with the meaning that Oniguruma gives it.
// Throws DataError for constructs that have no safe equivalent.
std::string TranslatePattern(std::string_view pattern, const std::string& source);

}  // namespace equipoise
