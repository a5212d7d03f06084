#include "data/text/text_model.h"

#include <xxhash.h>

#include <utility>

#include "data/text/unigram.h"
#include "data/text/word_cache.h"

namespace equipoise {
namespace {

// Words of BPE; those, or pieces of them, that come again are not merged again.
class CachedBpe {
 public:
  explicit CachedBpe(const TokenizerSpec& spec)
      : bpe_(&spec.vocabulary, spec.merges, spec.options) {}

  void Encode(std::string_view word, std::vector<int32_t>& ids) const {
    for (size_t begin = 0; begin < word.size();) {
      const size_t end = bpe_.PieceEnd(word, begin);
      EncodePiece(word.substr(begin, end - begin), ids);
      begin = end;
    }
  }

 private:
  void EncodePiece(std::string_view word, std::vector<int32_t>& ids) const {
    const uint64_t hash = XXH3_64bits(word.data(), word.size());
    if (cache_.Find(word, hash, ids)) return;
    const size_t from = ids.size();
    bpe_.Encode(word, ids);
    cache_.Store(word, hash, ids, from);
  }

  BpeModel bpe_;
  WordCache cache_;
};

// What all models of a tokenizer.json have in common.
class JsonText : public TextModel {
 public:
  JsonText(const TokenizerSpec& spec, const std::string& source)
      : spec_(spec), normalizer_(spec.normalizer, source + ": normalizer") {
    texts_.resize(static_cast<size_t>(spec.largest_id) + 1);
  }
  std::string Normalized(std::string_view text) const override { return normalizer_.Run(text); }
  std::optional<int32_t> Find(const std::string& token) const override {
    const auto found = spec_.vocabulary.find(token);
    if (found == spec_.vocabulary.end()) return std::nullopt;
    return found->second;
  }

 protected:
  const TokenizerSpec& spec_;
  Normalizer normalizer_;
  std::vector<std::string> texts_;  // of each id; empty = no such token
};

// Byte-level BPE.
class ByteLevelText : public JsonText {
 public:
  ByteLevelText(const TokenizerSpec& spec, const std::string& source)
      : JsonText(spec, source),
        bpe_(spec),
        pre_tokenizer_(spec.pre_tokenizer, source + ": pre_tokenizer") {
    const ByteAlphabet alphabet;
    for (const auto& [token, id] : spec.vocabulary) {
      texts_[static_cast<size_t>(id)] = alphabet.ToBytes(token).value_or(token);
    }
  }
  void Encode(std::string_view text, bool /*first*/, std::vector<int32_t>& ids) const override {
    pre_tokenizer_.Split(text, [&](std::string_view word) { bpe_.Encode(word, ids); });
  }
  std::string Decode(const std::vector<Token>& tokens) const override {
    std::string bytes;
    for (const Token& token : tokens) {
      bytes +=
          token.added != nullptr ? token.added->content : texts_[static_cast<size_t>(token.id)];
    }
    return bytes;
  }

 private:
  CachedBpe bpe_;
  PreTokenizer pre_tokenizer_;
};

// A model whose vocabulary is plain text, put together again by the decoder's steps.
class PlainText : public JsonText {
 public:
  PlainText(const TokenizerSpec& spec, const std::string& source) : JsonText(spec, source) {
    for (const auto& [token, id] : spec.vocabulary) texts_[static_cast<size_t>(id)] = token;
  }
  std::string Decode(const std::vector<Token>& tokens) const override {
    std::vector<std::string> texts;
    texts.reserve(tokens.size());
    for (const Token& token : tokens) {
      texts.push_back(token.added != nullptr ? token.added->content
                                             : texts_[static_cast<size_t>(token.id)]);
    }
    return DecodeTokens(std::move(texts), spec_.decoder);
  }
};

// BPE over characters with byte fallback: SentencePiece's, as LLaMA's tokenizer.json has it.
class ByteFallbackText : public PlainText {
 public:
  ByteFallbackText(const TokenizerSpec& spec, const std::string& source)
      : PlainText(spec, source), bpe_(spec) {}
  void Encode(std::string_view text, bool first, std::vector<int32_t>& ids) const override {
    if (!spec_.metaspace) return bpe_.Encode(text, ids);
    spec_.metaspace->Split(text, first, [&](std::string_view word) { bpe_.Encode(word, ids); });
  }

 private:
  CachedBpe bpe_;
};

// Unigram: T5's, XLM-RoBERTa's.
class UnigramText : public PlainText {
 public:
  UnigramText(const TokenizerSpec& spec, const std::string& source)
      : PlainText(spec, source),
        pre_tokenizer_(spec.pre_tokenizer, source + ": pre_tokenizer"),
        unigram_(&spec.pieces, &spec.vocabulary,
                 {spec.options.unknown, spec.options.byte_fallback}) {
    for (size_t id = 0; id < spec.pieces.size(); ++id) texts_[id] = spec.pieces[id].first;
  }
  void Encode(std::string_view text, bool first, std::vector<int32_t>& ids) const override {
    const auto encode = [&](std::string_view word) { unigram_.Encode(word, ids); };
    pre_tokenizer_.Split(text, [&](std::string_view part) {
      if (!spec_.metaspace) return encode(part);
      spec_.metaspace->Split(part, first && part.data() == text.data(), encode);
    });
  }

 private:
  PreTokenizer pre_tokenizer_;
  UnigramModel unigram_;
};

// WordPiece: BERT's.
class WordPieceText : public PlainText {
 public:
  WordPieceText(const TokenizerSpec& spec, const std::string& source)
      : PlainText(spec, source),
        pre_tokenizer_(spec.pre_tokenizer, source + ": pre_tokenizer"),
        model_(spec.vocabulary, *spec.word_piece) {}
  void Encode(std::string_view text, bool /*first*/, std::vector<int32_t>& ids) const override {
    pre_tokenizer_.Split(text, [&](std::string_view word) { model_.Encode(word, ids); });
  }

 private:
  PreTokenizer pre_tokenizer_;
  WordPieceModel model_;
};

// SentencePiece of a tokenizer.model; it normalizes by itself. A piece whose id an added token has
// taken ("[UNUSED_TOKEN_145]" of InternLM2, now <|im_end|>) is cut in two: no text makes that id.
class SentencePieceText : public TextModel {
 public:
  SentencePieceText(std::unique_ptr<SentencePieceModel> model, const std::vector<AddedToken>& added,
                    std::unique_ptr<SentencePieceModel> behind)
      : model_(std::move(model)),
        behind_(std::move(behind)),
        replaced_(static_cast<size_t>(model_->size())) {
    for (const AddedToken& token : added) {
      if (token.id < model_->size()) replaced_[static_cast<size_t>(token.id)] = true;
    }
  }
  std::string Normalized(std::string_view text) const override { return std::string(text); }
  void Encode(std::string_view text, bool first, std::vector<int32_t>& ids) const override {
    const bool spaced = text.starts_with(' ') || text.starts_with(kSpace);
    const SentencePieceModel& model = Model(first && !spaced);
    std::vector<int32_t> found;
    model.Encode(text, found);
    for (const int32_t id : found) {
      const std::string& piece = model_->Piece(id);
      size_t end = 1;  // of the first character
      while (end < piece.size() && (static_cast<unsigned char>(piece[end]) & 0xc0) == 0x80) ++end;
      if (replaced_[static_cast<size_t>(id)] && end < piece.size()) {
        model.Encode(piece.substr(0, end), ids);
        model.Encode(piece.substr(end), ids);
      } else {
        ids.push_back(id);
      }
    }
  }
  std::string Decode(const std::vector<Token>& tokens) const override {
    std::string text;
    std::vector<int32_t> plain;  // since the last added token
    const auto flush = [&] {
      if (!plain.empty()) text += Model(text.empty()).Decode(plain);
      plain.clear();
    };
    for (const Token& token : tokens) {
      if (token.added == nullptr) {
        plain.push_back(token.id);
        continue;
      }
      flush();
      text += token.added->content;
    }
    flush();
    return text;
  }
  std::optional<int32_t> Find(const std::string& token) const override {
    return model_->Find(token);
  }

 private:
  static constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

  const SentencePieceModel& Model(bool first) const {
    return first || behind_ == nullptr ? *model_ : *behind_;
  }

  std::unique_ptr<SentencePieceModel> model_, behind_;
  std::vector<bool> replaced_;  // by id
};

}  // namespace

std::unique_ptr<const TextModel> MakeTextModel(const TokenizerSpec& spec,
                                               const std::string& source) {
  if (!spec.pieces.empty()) return std::make_unique<UnigramText>(spec, source);
  if (spec.word_piece) return std::make_unique<WordPieceText>(spec, source);
  if (spec.options.byte_fallback) return std::make_unique<ByteFallbackText>(spec, source);
  return std::make_unique<ByteLevelText>(spec, source);
}

std::unique_ptr<const TextModel> MakeTextModel(std::unique_ptr<SentencePieceModel> model,
                                               const std::vector<AddedToken>& added,
                                               std::unique_ptr<SentencePieceModel> behind) {
  return std::make_unique<SentencePieceText>(std::move(model), added, std::move(behind));
}

}  // namespace equipoise
