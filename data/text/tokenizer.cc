#include "data/text/tokenizer.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>

#include "configs/base/error.h"
#include "configs/base/regular_file.h"
#include "data/text/added_token_files.h"
#include "data/text/sentencepiece_model.h"
#include "data/text/tokenizer_json.h"
#include "data/text/utf8.h"
#include "data/text/word_cache.h"

namespace equipoise {
namespace {

constexpr size_t kMaxFile = size_t{1} << 30;

std::string ReadFile(const std::string& path) {
  FileText file = ReadRegularFile(path, kMaxFile);
  if (!file.problem.empty()) throw DataError(path + ": " + file.problem);
  return std::move(file.text);
}

// A folder's tokenizer.json, or its tokenizer.model where that is all there is.
std::string FileOf(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::exists(fs::path(path) / name)) return (fs::path(path) / name).string();
  }
  throw DataError(path +
                  ": has no tokenizer.json or tokenizer.model; write one with Transformers: "
                  "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
}

// Interface of the two models that turn text between added tokens into ids, and back.
class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual std::string Normalized(std::string_view text) const = 0;
  // Appends the ids of normalized text.
  virtual void Encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Bytes of ids of the vocabulary.
  virtual std::string Decode(const std::vector<int32_t>& ids) const = 0;
  virtual std::optional<int32_t> Find(const std::string& token) const = 0;
};

// Byte-level BPE of a tokenizer.json.
class BytePairText : public TextModel {
 public:
  // REQUIRES: `spec` outlives this object.
  BytePairText(const TokenizerSpec& spec, const std::string& source)
      : vocabulary_(spec.vocabulary),
        normalizer_(spec.normal_form, source + ": normalizer"),
        pre_tokenizer_(spec.pre_tokenizer, source + ": pre_tokenizer"),
        bpe_(&spec.vocabulary, spec.merges, spec.options) {
    const ByteAlphabet alphabet;
    bytes_.resize(static_cast<size_t>(spec.largest_id) + 1);
    for (const auto& [token, id] : spec.vocabulary) {
      bytes_[static_cast<size_t>(id)] = alphabet.ToBytes(token).value_or(token);
    }
  }
  std::string Normalized(std::string_view text) const override {
    return std::string(normalizer_.Run(text));
  }
  void Encode(std::string_view text, std::vector<int32_t>& ids) const override {
    pre_tokenizer_.Split(text, [&](std::string_view word) {
      const uint64_t hash = XXH3_64bits(word.data(), word.size());
      if (cache_.Find(word, hash, ids)) return;
      const size_t from = ids.size();
      bpe_.Encode(word, ids);
      cache_.Store(word, hash, ids, from);
    });
  }
  std::string Decode(const std::vector<int32_t>& ids) const override {
    std::string bytes;
    for (const int32_t id : ids) bytes += bytes_[static_cast<size_t>(id)];
    return bytes;
  }
  std::optional<int32_t> Find(const std::string& token) const override {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) return std::nullopt;
    return found->second;
  }

 private:
  const Vocabulary& vocabulary_;
  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel bpe_;
  WordCache cache_;
  std::vector<std::string> bytes_;  // of each id; empty = no such token
};

// SentencePiece of a tokenizer.model; it normalizes by itself. A piece whose id an added token has
// taken ("[UNUSED_TOKEN_145]" of InternLM2, now <|im_end|>) is cut in two: no text makes that id.
class SentencePieceText : public TextModel {
 public:
  SentencePieceText(std::unique_ptr<SentencePieceModel> model, const std::vector<AddedToken>& added)
      : model_(std::move(model)), replaced_(static_cast<size_t>(model_->size())) {
    for (const AddedToken& token : added) {
      if (token.id < model_->size()) replaced_[static_cast<size_t>(token.id)] = true;
    }
  }
  std::string Normalized(std::string_view text) const override { return std::string(text); }
  void Encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int32_t> found;
    model_->Encode(text, found);
    for (const int32_t id : found) {
      const std::string& piece = model_->Piece(id);
      size_t first = 1;  // bytes of the first character
      while (first < piece.size() && (static_cast<unsigned char>(piece[first]) & 0xc0) == 0x80) {
        ++first;
      }
      if (replaced_[static_cast<size_t>(id)] && first < piece.size()) {
        model_->Encode(piece.substr(0, first), ids);
        model_->Encode(piece.substr(first), ids);
      } else {
        ids.push_back(id);
      }
    }
  }
  std::string Decode(const std::vector<int32_t>& ids) const override { return model_->Decode(ids); }
  std::optional<int32_t> Find(const std::string& token) const override {
    return model_->Find(token);
  }

 private:
  std::unique_ptr<SentencePieceModel> model_;
  std::vector<bool> replaced_;  // by id
};

}  // namespace

struct Tokenizer::Impl {
  Impl(TokenizerSpec read, std::unique_ptr<SentencePieceModel> pieces, std::string file,
       const std::string& begin, uint64_t hash)
      : spec(std::move(read)), source(std::move(file)), fingerprint(hash) {
    if (pieces == nullptr) {
      text = std::make_unique<BytePairText>(spec, source);
    } else {
      text = std::make_unique<SentencePieceText>(std::move(pieces), spec.added_tokens);
    }
    spec.merges = {};
    added.resize(static_cast<size_t>(spec.largest_id) + 1);
    for (const AddedToken& token : spec.added_tokens) {
      added[static_cast<size_t>(token.id)] = token;
      added_ids.emplace(token.content, token.id);
      if (token.normalized) {
        in_normalized.Add(token, text->Normalized(token.content));
      } else {
        in_raw.Add(token, token.content);
      }
    }
    if (!begin.empty()) begin_token = Find(begin);
  }

  std::optional<int32_t> Find(const std::string& token) const {
    const auto found = added_ids.find(token);
    return found != added_ids.end() ? found->second : text->Find(token);
  }

  void EncodeWithTokens(std::string_view whole, std::vector<int32_t>& ids) const {
    const auto add = [&](int32_t id) { ids.push_back(id); };
    const auto plain = [&](std::string_view part) { text->Encode(part, ids); };
    in_raw.Split(
        whole,
        [&](std::string_view part) { in_normalized.Split(text->Normalized(part), plain, add); },
        add);
  }

  TokenizerSpec spec;
  std::string source;
  std::unique_ptr<const TextModel> text;
  AddedTokenFinder in_raw, in_normalized;
  std::vector<std::optional<AddedToken>> added;  // by id
  Vocabulary added_ids;
  std::optional<int32_t> begin_token;
  uint64_t fingerprint;
};

Tokenizer Tokenizer::Read(const std::string& path) {
  const std::string file = FileOf(path);
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const std::string begin = ReadBeginToken(folder);
  std::string bytes = ReadFile(file);
  if (!file.ends_with(".model")) {
    const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
    return Tokenizer(
        std::make_unique<const Impl>(ReadTokenizerSpec(bytes, file), nullptr, file, begin, hash));
  }
  auto model = std::make_unique<SentencePieceModel>(bytes, file);
  AddedTokenFiles added = ReadAddedTokens(folder);
  TokenizerSpec spec;
  spec.largest_id = model->size() - 1;
  for (int32_t id = 0; id < model->size(); ++id) {  // those that no file lists
    const auto listed = [id](const AddedToken& token) { return token.id == id; };
    if (!model->IsControl(id) || std::any_of(added.tokens.begin(), added.tokens.end(), listed)) {
      continue;
    }
    spec.added_tokens.push_back({.content = model->Piece(id), .id = id, .special = true});
  }
  for (AddedToken& token : added.tokens) {
    spec.largest_id = std::max(spec.largest_id, token.id);
    spec.added_tokens.push_back(std::move(token));
  }
  bytes += added.text;
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  return Tokenizer(
      std::make_unique<const Impl>(std::move(spec), std::move(model), file, begin, hash));
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = ReplaceInvalidUtf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  if (parse_special) {
    impl_->EncodeWithTokens(text, ids);
  } else if (!text.empty()) {
    impl_->text->Encode(impl_->text->Normalized(text), ids);
  }
  return ids;
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string bytes;
  std::vector<int32_t> plain;  // since the last added token
  const auto flush = [&] {
    if (!plain.empty()) bytes += impl_->text->Decode(plain);
    plain.clear();
  };
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const std::optional<AddedToken>& token = impl_->added[static_cast<size_t>(id)];
    if (!token) {
      plain.push_back(id);
      continue;
    }
    flush();
    if (!skip_special || !token->special) bytes += token->content;
  }
  flush();
  return ReplaceInvalidUtf8(bytes);
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  return impl_->Find(std::string(token));
}

std::optional<int32_t> Tokenizer::begin_token() const { return impl_->begin_token; }
int64_t Tokenizer::vocab_size() const { return int64_t{impl_->spec.largest_id} + 1; }
uint64_t Tokenizer::fingerprint() const { return impl_->fingerprint; }
const std::string& Tokenizer::source() const { return impl_->source; }

}  // namespace equipoise
