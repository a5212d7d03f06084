#pragma once

#include <string>
#include <string_view>

namespace equipoise {

// Throws DataError, beginning with `source:`, where a tokenizer.model has a table of replaced
// characters (precompiled_charsmap) that leads outside itself: the library follows it unchecked.
// What is no protocol buffer is left to the library, which refuses it.
void CheckCharsmaps(std::string_view model, const std::string& source);

}  // namespace equipoise
