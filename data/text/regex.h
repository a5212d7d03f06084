#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// A pattern of tokenizer.json (written for Oniguruma). The code points that it treats alike become
// one byte each, by tables of our own (unicode_tables.h), and PCRE2 with JIT matches these bytes:
// what a letter is does not depend on the machine's PCRE2. Immutable, so threads share it; each
// matches through a Matcher of its own.
class Regex {
 public:
  struct Match {
    size_t begin = 0, end = 0;
  };

  // Scratch space of one thread, and the work that it may still do. The regex must outlive it.
  class Matcher {
   public:
    // `text_bytes`: length of all texts that will be searched. Work that exceeds a multiple of it
    // is refused.
    Matcher(const Regex& regex, size_t text_bytes);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    // Replaces `matches` by all matches in `text`, from left to right. A lookahead can give empty
    // ones. REQUIRES: `text` is valid UTF-8. Throws TextError when the search exceeds the limits on
    // work and memory.
    void FindAll(std::string_view text, std::vector<Match>& matches);

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

}  // namespace equipoise
