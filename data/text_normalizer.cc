#include "data/text_normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "data/utf8.h"

namespace equipoise {
namespace {

// Characters below this one are their own normal form under NFC.
constexpr uint32_t kFirstCombining = 0x300;

bool IsUnchanged(std::string_view text, NormalForm form) {
  const uint32_t limit = form == NormalForm::kNfc ? kFirstCombining : 0x80;
  // Two-byte characters below U+0300 have leading bytes below 0xCC.
  const uint8_t first_bad = limit == 0x80 ? 0x80 : 0xCC;
  return std::none_of(text.begin(), text.end(), [&](char c) {
    const auto byte = static_cast<uint8_t>(c);
    return byte >= first_bad && byte >= 0xC0;
  });
}

std::vector<utf8proc_int32_t> Decompose(std::string_view text, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size() + 16);
  utf8proc_int32_t parts[32];  // the longest decomposition has 18
  int boundary = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = ReadCodePoint(text, i);
    i += point.bytes;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.value), parts,
                                               32, options, &boundary);
    if (count > 0) out.insert(out.end(), parts, parts + std::min<utf8proc_ssize_t>(count, 32));
  }
  return out;
}

// Sorts every run of combining marks by class. utf8proc_decompose does this by swapping neighbours,
// which takes quadratic time.
void OrderMarks(std::vector<utf8proc_int32_t>& text) {
  const auto mark_class = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  for (auto begin = text.begin(); begin != text.end();) {
    if (mark_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, text.end(), [&](auto c) { return mark_class(c) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    begin = end;
  }
}

std::string NormalizeOnce(std::string_view text, NormalForm form) {
  if (IsUnchanged(text, form)) return std::string(text);
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const int kind = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> points = Decompose(text, static_cast<utf8proc_option_t>(kind));
  OrderMarks(points);
  if (composed) {
    const int options = UTF8PROC_STABLE | UTF8PROC_COMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    const auto size = utf8proc_normalize_utf32(points.data(), std::ssize(points),
                                               static_cast<utf8proc_option_t>(options));
    points.resize(static_cast<size_t>(size));
  }
  std::string out;
  out.reserve(text.size());
  for (const auto point : points) AppendCodePoint(out, static_cast<uint32_t>(point));
  return out;
}

}  // namespace

std::string Normalize(std::string_view text, const std::vector<NormalForm>& forms) {
  std::string out(text);
  for (const NormalForm form : forms) out = NormalizeOnce(out, form);
  return out;
}

}  // namespace equipoise
