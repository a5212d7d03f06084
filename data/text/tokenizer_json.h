#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/json.h"
#include "data/text/added_tokens.h"
#include "data/text/bpe.h"
#include "data/text/decoder.h"
#include "data/text/metaspace.h"
#include "data/text/normalizer.h"
#include "data/text/pretokenizer.h"
#include "data/text/word_piece.h"

namespace equipoise {

// The content of a tokenizer.json, checked: every id is known, unique and below kMaxTokenId, every
// merge joins tokens of the vocabulary.
struct TokenizerSpec {
  // In the byte alphabet, with options.byte_fallback in plain text; added tokens not included.
  Vocabulary vocabulary;
  // Of a unigram model, in the order of their ids: pieces and scores. Empty: the model is another.
  std::vector<std::pair<std::string, double>> pieces;
  std::optional<WordPieceModel::Options> word_piece;  // none: the model is another
  std::vector<BpeModel::Merge> merges;
  BpeModel::Options options;
  std::vector<NormalizerStep> normalizer;
  PreTokenizerSpec pre_tokenizer;  // not with byte fallback; of unigram the steps before Metaspace
  std::optional<Metaspace> metaspace;  // with byte fallback and unigram; none: a text is one word
  std::vector<DecoderStep> decoder;    // but of byte-level BPE
  std::vector<AddedToken> added_tokens;
  std::string begin_token;  // that the post-processor puts before a text; empty: none
  int32_t largest_id = -1;
};

constexpr int32_t kMaxTokenId = 1 << 24;

// Reads the text of a tokenizer.json. Throws DataError (`source: key: what; what to do`) for files
// that are damaged, inconsistent, or of a kind that is not supported.
TokenizerSpec ReadTokenizerSpec(const std::string& text, const std::string& source);
TokenizerSpec ReadTokenizerSpec(const Json& root, const std::string& source);

}  // namespace equipoise
