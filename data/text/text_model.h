#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/added_tokens.h"
#include "data/text/sentencepiece_model.h"
#include "data/text/tokenizer_json.h"

namespace equipoise {

// Interface of the models that turn text between added tokens into ids, and back. Thread-safe.
class TextModel {
 public:
  // A token to be decoded: an added one, or an id of the vocabulary.
  struct Token {
    int32_t id;
    const AddedToken* added;  // null: none
  };

  virtual ~TextModel() = default;
  virtual std::string Normalized(std::string_view text) const = 0;
  // Appends the ids of normalized text; `first`: no text and no token is before it.
  virtual void Encode(std::string_view text, bool first, std::vector<int32_t>& ids) const = 0;
  // The bytes of tokens.
  virtual std::string Decode(const std::vector<Token>& tokens) const = 0;
  virtual std::optional<int32_t> Find(const std::string& token) const = 0;
};

// The model of a tokenizer.json: byte-level BPE, BPE with byte fallback, unigram, or WordPiece.
// REQUIRES: `spec` outlives it; its merges are not used any more.
std::unique_ptr<const TextModel> MakeTextModel(const TokenizerSpec& spec,
                                               const std::string& source);
// SentencePiece of a tokenizer.model with tokens that a folder's files add. `behind`: the model for
// texts behind an added token, and for those that begin with a space; null: the same.
std::unique_ptr<const TextModel> MakeTextModel(
    std::unique_ptr<SentencePieceModel> model, const std::vector<AddedToken>& added,
    std::unique_ptr<SentencePieceModel> behind = nullptr);

}  // namespace equipoise
