#include "data/text/metaspace.h"

#include <algorithm>

#include "data/text/decoder.h"

namespace equipoise {

void Metaspace::Split(std::string_view part, bool first,
                      const std::function<void(std::string_view)>& word) const {
  if (part.empty()) return;
  std::string text = ReplaceAll(std::string(part), " ", replacement);
  const bool wanted = prepend == Prepend::kAlways || (prepend == Prepend::kFirst && first);
  if (wanted && !text.starts_with(replacement)) text.insert(0, replacement);
  if (!split) return word(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.size(), text.find(replacement, begin + 1));
    word(std::string_view(text).substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace equipoise
