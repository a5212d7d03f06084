#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/added_tokens.h"

namespace equipoise {

// A tokenizer of a Hugging Face tokenizer.json: BPE, byte-level (GPT-2, Qwen2, Llama 3) or with
// byte fallback (LLaMA, Mistral), Unigram (T5) or WordPiece (BERT); or a SentencePiece model, or
// vocab.json and merges.txt, with the added tokens of the files in its folder. Thread-safe once
// built. Ids and texts equal those of the `tokenizers` and `sentencepiece` libraries.
class Tokenizer {
 public:
  // `path` is a tokenizer.json, a tokenizer.model, a vocab.json (with merges.txt beside it), or a
  // folder that holds one; of several, the first is read. Throws DataError (`path: what; what to
  // do`) for files that are damaged, inconsistent, or of a kind that is not supported. `added`:
  // texts that become special tokens where the files have no such added token; new ids are those
  // behind the largest, as with Transformers' add_special_tokens. `rows`: of the model's embedding;
  // added tokens with ids from there on are left out, and stay text where a text has them
  // (Transformers' InternVL folders have such a <video>). The begin token never is.
  static Tokenizer Read(const std::string& path, const std::vector<std::string>& added = {},
                        int64_t rows = std::numeric_limits<int64_t>::max());
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Added and special tokens in the text are recognized when `parse_special`; otherwise they are
  // ordinary text. No BOS or EOS is added. `first`: no text and no token is before it, so that a
  // tokenizer puts its space there that puts one before a text alone (Metaspace, prepend_scheme
  // "first"). Throws TextError for text that costs too much.
  std::vector<int32_t> Encode(std::string_view text, bool parse_special, bool first = true) const;
  // Bytes of the ids, invalid UTF-8 replaced by U+FFFD as Hugging Face does.
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const;
  std::optional<int32_t> TokenId(std::string_view token) const;
  // All added tokens.
  const std::vector<AddedToken>& added_tokens() const;
  // Those that Read() has left out.
  const std::vector<AddedToken>& left_out() const;
  // The added token of an id; null: none.
  const AddedToken* FindAdded(int32_t id) const;
  // Calls `plain` for the text between added tokens and `token` for each of these, in order.
  void SplitAdded(std::string_view text, const std::function<void(std::string_view)>& plain,
                  const std::function<void(int32_t)>& token) const;
  // The token that the tokenizer's own code puts before a text: add_bos_token of
  // tokenizer_config.json, else the post-processor of tokenizer.json.
  std::optional<int32_t> begin_token() const;
  int64_t vocab_size() const;         // largest id + 1
  const std::string& source() const;  // its file, for messages
  // Changes with the file and with the tokens left out; part of the cost index's key.
  uint64_t fingerprint() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace equipoise
