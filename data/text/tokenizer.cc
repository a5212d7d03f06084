#include "data/text/tokenizer.h"

#include <xxhash.h>

#include <filesystem>

#include "configs/base/error.h"
#include "configs/base/regular_file.h"
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

std::string FileOf(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return path;
  std::string file = (std::filesystem::path(path) / "tokenizer.json").string();
  if (!std::filesystem::exists(file)) {
    throw DataError(path +
                    ": has no tokenizer.json; write one with Transformers: "
                    "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
  }
  return file;
}

}  // namespace

struct Tokenizer::Impl {
  Impl(TokenizerSpec read, std::string file, uint64_t hash)
      : spec(std::move(read)),
        source(std::move(file)),
        normalizer(spec.normal_form, source + ": normalizer"),
        pre_tokenizer(spec.pre_tokenizer, source + ": pre_tokenizer"),
        bpe(&spec.vocabulary, spec.merges, spec.options),
        fingerprint(hash) {
    spec.merges = {};
    BuildTables();
  }

  void BuildTables() {
    const ByteAlphabet alphabet;
    bytes.resize(static_cast<size_t>(spec.largest_id) + 1);
    special.resize(bytes.size());
    const auto set_bytes = [&](int32_t id, const std::string& token) {
      bytes[static_cast<size_t>(id)] = alphabet.ToBytes(token).value_or(token);
    };
    for (const auto& [token, id] : spec.vocabulary) set_bytes(id, token);
    for (const AddedToken& token : spec.added_tokens) {
      set_bytes(token.id, token.content);
      special[static_cast<size_t>(token.id)] = token.special;
      added_ids.emplace(token.content, token.id);
      if (token.normalized) {
        in_normalized.Add(token, normalizer.Run(token.content));
      } else {
        in_raw.Add(token, token.content);
      }
    }
  }

  void EncodePlain(std::string_view text, std::vector<int32_t>& ids) const {
    pre_tokenizer.Split(text, [&](std::string_view word) {
      const uint64_t hash = XXH3_64bits(word.data(), word.size());
      if (cache.Find(word, hash, ids)) return;
      const size_t from = ids.size();
      bpe.Encode(word, ids);
      cache.Store(word, hash, ids, from);
    });
  }

  void EncodeWithTokens(std::string_view text, std::vector<int32_t>& ids) const {
    const auto add = [&](int32_t id) { ids.push_back(id); };
    const auto plain = [&](std::string_view part) { EncodePlain(part, ids); };
    in_raw.Split(
        text, [&](std::string_view part) { in_normalized.Split(normalizer.Run(part), plain, add); },
        add);
  }

  TokenizerSpec spec;
  std::string source;
  TextNormalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel bpe;
  WordCache cache;
  AddedTokenFinder in_raw, in_normalized;
  std::vector<std::string> bytes;  // of each id; empty = no such token
  std::vector<bool> special;
  Vocabulary added_ids;
  uint64_t fingerprint;
};

Tokenizer Tokenizer::Read(const std::string& path) {
  const std::string file = FileOf(path);
  const std::string text = ReadFile(file);
  return Tokenizer(std::make_unique<const Impl>(ReadTokenizerSpec(text, file), file,
                                                XXH3_64bits(text.data(), text.size())));
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
    impl_->EncodePlain(impl_->normalizer.Run(text), ids);
  }
  return ids;
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    if (skip_special && impl_->special[static_cast<size_t>(id)]) continue;
    bytes += impl_->bytes[static_cast<size_t>(id)];
  }
  return ReplaceInvalidUtf8(bytes);
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  const std::string key(token);
  if (const auto added = impl_->added_ids.find(key); added != impl_->added_ids.end())
    return added->second;
  const auto found = impl_->spec.vocabulary.find(key);
  if (found == impl_->spec.vocabulary.end()) return std::nullopt;
  return found->second;
}

int64_t Tokenizer::vocab_size() const { return int64_t{impl_->spec.largest_id} + 1; }
uint64_t Tokenizer::fingerprint() const { return impl_->fingerprint; }
const std::string& Tokenizer::source() const { return impl_->source; }

}  // namespace equipoise
