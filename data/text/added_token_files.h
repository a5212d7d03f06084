#pragma once

#include <string>
#include <vector>

#include "data/text/added_tokens.h"

namespace equipoise {

// Added tokens that a folder lists in files of their own, next to its tokenizer.model.
struct AddedTokenFiles {
  std::vector<AddedToken> tokens;  // in the order of their ids
  std::string text;                // content of the files read
};

// The token that a folder's tokenizer puts before a text: bos_token of tokenizer_config.json where
// add_bos_token says so, or is absent and the class is one that puts it by default
// (InternLM2Tokenizer, LlamaTokenizer). Where neither is known: `fallback`. Empty: none.
std::string ReadBeginToken(const std::string& folder, const std::string& fallback);

// Whether a space is put before the first part of a text alone, and not behind added tokens:
// `legacy: false` of tokenizer_config.json, of the class LlamaTokenizer.
bool PrefixesFirstAlone(const std::string& folder);

// Reads added_tokens_decoder of FOLDER/tokenizer_config.json or, where there is none, as
// Transformers does, FOLDER/added_tokens.json, all of them special. Both may be absent. Throws
// DataError (`file: key: what`).
AddedTokenFiles ReadAddedTokens(const std::string& folder);

}  // namespace equipoise
