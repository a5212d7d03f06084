#include "data/text/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <new>
#include <optional>

#include "configs/base/error.h"
#include "data/text/regex_classes.h"
#include "data/text/text_error.h"

// A search sees only a window of the text (PCRE2's partial matching), which grows by factors of
// four where a match reaches its end; each growth is charged to a budget proportional to the text.
// So the usual pattern costs O(n), and one that backtracks without bound is refused instead of
// taking O(n^2) or worse.

namespace equipoise {
namespace {

constexpr size_t kMaxPattern = 16 << 10;
constexpr uint32_t kHeapLimitKib = 256 << 10;
constexpr size_t kJitStackBytes = 32 << 10;
constexpr size_t kJitStackLimit = 64 << 20;

// Characters of the first window: the cost of a search shows in how far it must see.
constexpr size_t kFirstWindow = 256;
// PCRE2's own count of steps in a window of the first size; it grows with the window.
constexpr uint32_t kFirstMatchLimit = 4096;
constexpr uint32_t kLargestMatchLimit = 50'000'000;
// Characters that all searches may see beyond their first windows, for each byte of text.
constexpr size_t kWorkPerByte = 64;
constexpr size_t kFreeWork = size_t{1} << 20;

template <class T, void (*kFree)(T*)>
struct Freer {
  void operator()(T* pointer) const { kFree(pointer); }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code, pcre2_code_free>>;
using Context =
    std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context, pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data, pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freer<pcre2_jit_stack, pcre2_jit_stack_free>>;

std::string ErrorText(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

Code Compile(std::string_view pattern, const std::string& bytes, const std::string& source) {
  int error = 0;
  size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(bytes.data()), bytes.size(), 0, &error,
                          &offset, nullptr));
  const std::string quoted = fmt::format("the pattern '{}'", pattern.substr(0, 200));
  if (!code) {
    throw DataError(fmt::format("{}: {} is broken: {}", source, quoted, ErrorText(error)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    throw DataError(
        fmt::format("{}: {} matches the empty text, so it cuts nothing", source, quoted));
  }
  return code;
}

// Maps the characters of `text` to their bytes. REQUIRES: valid UTF-8, which is not checked.
void MapText(std::string_view text, const CodePointTable& byte_of, std::string& bytes) {
  if (bytes.size() < text.size()) bytes.resize(text.size());
  char* out = bytes.data();
  const auto* at = reinterpret_cast<const uint8_t*>(text.data());
  for (const uint8_t* end = at + text.size(); at < end;) {
    uint32_t point = *at++;
    if (point >= 0xF0) {
      point = (point & 0x07) << 18 | (at[0] & 0x3Fu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
      at += 3;
    } else if (point >= 0xE0) {
      point = (point & 0x0F) << 12 | (at[0] & 0x3Fu) << 6 | (at[1] & 0x3Fu);
      at += 2;
    } else if (point >= 0x80) {
      point = (point & 0x1F) << 6 | (*at++ & 0x3Fu);
    }
    *out++ = static_cast<char>(byte_of[point]);
  }
  bytes.resize(static_cast<size_t>(out - bytes.data()));
}

// Converter of the number of a character into its offset in the text, for ascending numbers.
class Cursor {
 public:
  Cursor(std::string_view text, size_t characters)
      : text_(text), ascii_(text.size() == characters) {}

  size_t OffsetOf(size_t character) {
    if (ascii_) return character;
    for (; at_ < character; ++at_) {
      const auto lead = static_cast<uint8_t>(text_[offset_]);
      offset_ += lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    }
    return offset_;
  }

 private:
  std::string_view text_;
  bool ascii_;
  size_t at_ = 0, offset_ = 0;
};

}  // namespace

struct Regex::Impl {
  BytePattern translated;
  Code code;
  bool has_jit;
  std::string source;
};

Regex::Regex(std::string_view pattern, const std::string& source) {
  if (pattern.size() > kMaxPattern) {
    throw DataError(fmt::format("{}: a pattern of {} bytes is too long", source, pattern.size()));
  }
  BytePattern translated = TranslatePattern(pattern, source);
  Code code = Compile(pattern, translated.pattern, source);
  // Where there is no JIT (a hardened kernel), pcre2_match interprets.
  const bool has_jit =
      pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  impl_ =
      std::make_unique<const Impl>(Impl{std::move(translated), std::move(code), has_jit, source});
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct Regex::Matcher::Impl {
  const Regex::Impl* regex;
  size_t work_left;
  uint32_t set_limit = 0;  // of the context
  MatchData data{pcre2_match_data_create(1, nullptr)};
  JitStack stack;  // only for matches that need more than the machine's stack gives
  Context context{pcre2_match_context_create(nullptr)};
  std::string bytes;  // of the text

  // The first match at or after `start`, in characters.
  std::optional<Match> Find(size_t start);

 private:
  // Runs PCRE2 on the characters from `start` up to `end`, and returns its result.
  int Run(size_t start, size_t end, uint32_t match_limit);
  // Charges work to the budget. Throws TextError where it is spent.
  void Spend(size_t characters);
  [[noreturn]] void GiveUp(const std::string& why) const;
};

int Regex::Matcher::Impl::Run(size_t start, size_t end, uint32_t match_limit) {
  if (match_limit != set_limit) pcre2_set_match_limit(context.get(), match_limit);
  set_limit = match_limit;
  const uint32_t options = end < bytes.size() ? PCRE2_PARTIAL_HARD : 0;
  const auto match = [&] {
    // pcre2_match checks its arguments and calls pcre2_jit_match.
    return (regex->has_jit ? pcre2_jit_match : pcre2_match)(
        regex->code.get(), reinterpret_cast<PCRE2_SPTR>(bytes.data()), end, start, options,
        data.get(), context.get());
  };
  const int result = match();
  if (result != PCRE2_ERROR_JIT_STACKLIMIT || stack) return result;
  stack.reset(pcre2_jit_stack_create(kJitStackBytes, kJitStackLimit, nullptr));
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  return match();
}

void Regex::Matcher::Impl::GiveUp(const std::string& why) const {
  throw TextError(fmt::format("{}: the pattern gave up on a text of {} characters: {}",
                              regex->source, bytes.size(), why));
}

void Regex::Matcher::Impl::Spend(size_t characters) {
  if (characters > work_left) GiveUp("it would take too long");
  work_left -= characters;
}

std::optional<Regex::Match> Regex::Matcher::Impl::Find(size_t start) {
  uint32_t limit = kFirstMatchLimit;
  for (size_t window = kFirstWindow;;) {
    const size_t end = std::min(start + window, bytes.size());
    const int result = Run(start, end, limit);
    const size_t* bounds = pcre2_get_ovector_pointer(data.get());
    if (result >= 0) return Match{bounds[0], bounds[1]};
    if (result == PCRE2_ERROR_NOMATCH) {
      if (end == bytes.size()) return std::nullopt;
      start = end;  // nothing begins in this window
    } else if (result == PCRE2_ERROR_PARTIAL) {
      start = bounds[0];
      Spend(window);
      window *= 4;
      limit = std::min(limit * 4, kLargestMatchLimit);
    } else if (result == PCRE2_ERROR_MATCHLIMIT && limit < kLargestMatchLimit) {
      Spend(limit);
      limit = std::min(limit * 4, kLargestMatchLimit);
    } else {
      GiveUp(ErrorText(result));
    }
  }
}

Regex::Matcher::Matcher(const Regex& regex, size_t text_bytes) : impl_(std::make_unique<Impl>()) {
  impl_->regex = regex.impl_.get();
  impl_->work_left = kFreeWork + kWorkPerByte * text_bytes;
  if (!impl_->data || !impl_->context) throw std::bad_alloc();
  pcre2_set_heap_limit(impl_->context.get(), kHeapLimitKib);
}
Regex::Matcher::~Matcher() = default;
Regex::Matcher::Matcher(Matcher&&) noexcept = default;

void Regex::Matcher::FindAll(std::string_view text, std::vector<Match>& matches) {
  matches.clear();
  MapText(text, impl_->regex->translated.byte_of, impl_->bytes);
  const size_t characters = impl_->bytes.size();
  Cursor cursor(text, characters);
  for (size_t at = 0; at < characters;) {
    const std::optional<Match> match = impl_->Find(at);
    if (!match) return;
    const size_t begin = cursor.OffsetOf(match->begin);
    matches.push_back({begin, cursor.OffsetOf(match->end)});
    at = std::max(match->end, match->begin + 1);
  }
}

}  // namespace equipoise
