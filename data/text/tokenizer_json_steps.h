#pragma once

#include <optional>
#include <string>

#include "configs/base/json.h"
#include "data/text/pretokenizer.h"
#include "data/text/text_normalizer.h"

namespace equipoise {

// Readers of the text-cutting parts of a tokenizer.json. All throw a DataError that begins with
// `source:` for parts that are damaged or not supported.

// The normal form that all normalizers of a sequence amount to, if any.
std::optional<NormalForm> ReadNormalizer(const Json& normalizer, const std::string& source);
PreTokenizerSpec ReadPreTokenizer(const Json& pre_tokenizer, const std::string& source);
void CheckDecoder(const Json& decoder, const std::string& source);

}  // namespace equipoise
