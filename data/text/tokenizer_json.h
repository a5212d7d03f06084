#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/text/added_tokens.h"
#include "data/text/bpe.h"
#include "data/text/pretokenizer.h"
#include "data/text/text_normalizer.h"

namespace equipoise {

// The content of a tokenizer.json, checked: every id is known, unique and below kMaxTokenId, every
// merge joins tokens of the vocabulary.
struct TokenizerSpec {
  Vocabulary vocabulary;  // in the byte alphabet, added tokens not included
  std::vector<BpeModel::Merge> merges;
  BpeModel::Options options;
  std::optional<NormalForm> normal_form;
  PreTokenizerSpec pre_tokenizer;
  std::vector<AddedToken> added_tokens;
  int32_t largest_id = -1;
};

constexpr int32_t kMaxTokenId = 1 << 24;

// Reads the text of a tokenizer.json. Throws DataError (`source: key: what; what to do`) for files
// that are damaged, inconsistent, or of a kind that is not supported.
TokenizerSpec ReadTokenizerSpec(const std::string& text, const std::string& source);

}  // namespace equipoise
