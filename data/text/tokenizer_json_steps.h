#pragma once

#include <optional>
#include <string>

#include "configs/base/json.h"
#include "data/text/pretokenizer.h"
#include "data/text/text_normalizer.h"

namespace equipoise {

// The text-cutting parts of a tokenizer.json. `source` begins the DataError thrown for what is
// damaged or not supported.
// The form that all normalizers of a sequence come to, if any.
std::optional<NormalForm> ReadNormalizer(const Json& normalizer, const std::string& source);
PreTokenizerSpec ReadPreTokenizer(const Json& pre_tokenizer, const std::string& source);
void CheckDecoder(const Json& decoder, const std::string& source);

}  // namespace equipoise
