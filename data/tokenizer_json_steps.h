#pragma once

#include <string>
#include <vector>

#include "configs/json.h"
#include "data/pretokenizer.h"
#include "data/text_normalizer.h"

namespace equipoise {

// The text-cutting parts of a tokenizer.json. `source` begins the DataError thrown for what is
// damaged or not supported.
std::vector<NormalForm> ReadNormalizer(const Json& normalizer, const std::string& source);
PreTokenizerSpec ReadPreTokenizer(const Json& pre_tokenizer, const std::string& source);
void CheckDecoder(const Json& decoder, const std::string& source);

}  // namespace equipoise
