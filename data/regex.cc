#include "data/regex.h"

#include <pcre2.h>

#include <new>

#include "configs/error.h"

namespace equipoise {
namespace {

constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKib = 256 << 10;
constexpr size_t kJitStackBytes = 32 << 10;
constexpr size_t kJitStackLimit = 64 << 20;

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

Code Compile(std::string_view pattern, const std::string& source) {
  if (pattern.size() > kMaxPattern) {
    throw DataError(source + ": a pattern of " + std::to_string(pattern.size()) +
                    " bytes is too long");
  }
  const std::string translated = TranslatePattern(pattern, source);
  int error = 0;
  size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                          nullptr));
  const std::string quoted = "the pattern '" + std::string(pattern) + "'";
  if (!code) {
    throw DataError(source + ": " + quoted + " is broken: " + ErrorText(error));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    throw DataError(source + ": " + quoted + " matches the empty text, so it cuts nothing");
  }
  // Where there is no JIT (a hardened kernel), pcre2_match interprets.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct Regex::Impl {
  Code code;
  std::string source;
};

Regex::Regex(std::string_view pattern, const std::string& source)
    : impl_(std::make_unique<const Impl>(Impl{Compile(pattern, source), source})) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

struct Regex::Matcher::Impl {
  const Regex::Impl* regex;
  MatchData data{pcre2_match_data_create(1, nullptr)};
  JitStack stack;  // only for matches that need more than the machine's stack gives
  Context context{pcre2_match_context_create(nullptr)};

  int Run(std::string_view text, size_t start) {
    return pcre2_match(regex->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       start, PCRE2_NO_UTF_CHECK, data.get(), context.get());
  }
};

Regex::Matcher::Matcher(const Regex& regex) : impl_(std::make_unique<Impl>()) {
  impl_->regex = regex.impl_.get();
  if (!impl_->data || !impl_->context) throw std::bad_alloc();
  pcre2_set_match_limit(impl_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(impl_->context.get(), kHeapLimitKib);
}
Regex::Matcher::~Matcher() = default;
Regex::Matcher::Matcher(Matcher&&) noexcept = default;

std::optional<Regex::Match> Regex::Matcher::Find(std::string_view text, size_t start) {
  int result = impl_->Run(text, start);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && !impl_->stack) {
    impl_->stack.reset(pcre2_jit_stack_create(kJitStackBytes, kJitStackLimit, nullptr));
    pcre2_jit_stack_assign(impl_->context.get(), nullptr, impl_->stack.get());
    result = impl_->Run(text, start);
  }
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw DataError(impl_->regex->source +
                    ": the pattern of the pre-tokenizer gave up on a text of " +
                    std::to_string(text.size()) + " bytes: " + ErrorText(result));
  }
  const size_t* bounds = pcre2_get_ovector_pointer(impl_->data.get());
  return Match{bounds[0], bounds[1]};
}

}  // namespace equipoise
