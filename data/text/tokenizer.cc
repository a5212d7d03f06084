#include "data/text/tokenizer.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "configs/base/error.h"
#include "configs/base/regular_file.h"
#include "data/text/added_token_files.h"
#include "data/text/text_model.h"
#include "data/text/utf8.h"
#include "data/text/vocabulary_files.h"

namespace equipoise {
namespace {

constexpr size_t kMaxFile = size_t{1} << 30;

std::string ReadFile(const std::string& path) {
  FileText file = ReadRegularFile(path, kMaxFile);
  if (!file.problem.empty()) throw DataError(path + ": " + file.problem);
  return std::move(file.text);
}

// A folder's tokenizer.json, or its tokenizer.model, or its vocab.json where that is all there is.
std::string FileOf(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::exists(fs::path(path) / name)) return (fs::path(path) / name).string();
  }
  if (fs::exists(fs::path(path) / "vocab.json") && fs::exists(fs::path(path) / "merges.txt"))
    return (fs::path(path) / "vocab.json").string();
  throw DataError(path +
                  ": has no tokenizer.json, tokenizer.model or vocab.json with merges.txt; write "
                  "one with Transformers: "
                  "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
}

// Adds special tokens that are not among a tokenizer's added ones. `find`: ids of its vocabulary.
void AddTokens(const std::vector<std::string>& texts,
               const std::function<std::optional<int32_t>(const std::string&)>& find,
               TokenizerSpec* spec) {
  for (const std::string& text : texts) {
    const auto same = [&text](const AddedToken& token) { return token.content == text; };
    const std::vector<AddedToken>& all = spec->added_tokens;
    if (std::any_of(all.begin(), all.end(), same)) continue;
    const std::optional<int32_t> known = find(text);
    const int32_t id = known ? *known : ++spec->largest_id;
    spec->added_tokens.push_back({.content = text, .id = id, .special = true});
  }
}

// Moves the added tokens from id `rows` on to `left_out`, but not `begin`. `largest`: the largest
// id of the vocabulary.
void LeaveOut(int64_t rows, const std::string& begin, int32_t largest, TokenizerSpec* spec,
              std::vector<AddedToken>* left_out) {
  const auto stays = [&](const AddedToken& token) {
    return token.id < rows || token.id <= largest || token.content == begin;
  };
  std::vector<AddedToken>& added = spec->added_tokens;
  const auto gone = std::stable_partition(added.begin(), added.end(), stays);
  if (gone == added.end()) return;
  left_out->assign(std::make_move_iterator(gone), std::make_move_iterator(added.end()));
  added.erase(gone, added.end());
  spec->largest_id = largest;
  for (const AddedToken& token : added) spec->largest_id = std::max(spec->largest_id, token.id);
}

int32_t LargestId(const Vocabulary& vocabulary) {
  int32_t largest = -1;
  for (const auto& [token, id] : vocabulary) largest = std::max(largest, id);
  return largest;
}

// A hash of a tokenizer's files, of the tokens added to them, and of those left out.
uint64_t HashOf(std::string bytes, const std::vector<std::string>& added,
                const std::vector<AddedToken>& left_out) {
  for (const std::string& text : added) bytes += '\0' + text;
  for (const AddedToken& token : left_out) bytes += "\nwithout " + std::to_string(token.id);
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

struct Tokenizer::Impl {
  // What a tokenizer's files hold; `begin`: the text of the begin token, empty where it has none.
  struct Content {
    TokenizerSpec spec;
    std::unique_ptr<SentencePieceModel> pieces;
    std::unique_ptr<SentencePieceModel> behind;  // of MakeTextModel()
    std::vector<AddedToken> left_out;
    std::string begin;
  };

  Impl(Content read, std::string file, uint64_t hash)
      : spec(std::move(read.spec)),
        left_out(std::move(read.left_out)),
        source(std::move(file)),
        fingerprint(hash) {
    std::unique_ptr<SentencePieceModel> pieces = std::move(read.pieces);
    text = pieces == nullptr
               ? MakeTextModel(spec, source)
               : MakeTextModel(std::move(pieces), spec.added_tokens, std::move(read.behind));
    spec.merges = {};
    added.resize(static_cast<size_t>(spec.largest_id) + 1);
    for (const AddedToken& token : spec.added_tokens) {
      added[static_cast<size_t>(token.id)] = token;
      added_ids.emplace(token.content, token.id);
      all.Add({.content = token.content, .id = token.id}, token.content);
      if (token.normalized) {
        std::string& shown = added[static_cast<size_t>(token.id)]->content;
        shown = text->Normalized(token.content);
        in_normalized.Add(token, shown);
      } else {
        in_raw.Add(token, token.content);
      }
    }
    if (!read.begin.empty()) begin_token = Find(read.begin);
  }

  std::optional<int32_t> Find(const std::string& token) const {
    const auto found = added_ids.find(token);
    return found != added_ids.end() ? found->second : text->Find(token);
  }

  void EncodeWithTokens(std::string_view whole, bool first, std::vector<int32_t>& ids) const {
    const size_t before = ids.size();
    const auto add = [&](int32_t id) { ids.push_back(id); };
    const auto plain = [&](std::string_view part) {
      text->Encode(part, first && ids.size() == before, ids);
    };
    in_raw.Split(
        whole,
        [&](std::string_view part) { in_normalized.Split(text->Normalized(part), plain, add); },
        add);
  }

  TokenizerSpec spec;
  std::vector<AddedToken> left_out;
  std::string source;
  std::unique_ptr<const TextModel> text;
  AddedTokenFinder in_raw, in_normalized;
  AddedTokenFinder all;                          // without the white space that belongs to a token
  std::vector<std::optional<AddedToken>> added;  // by id, with the text that it is decoded to
  Vocabulary added_ids;
  std::optional<int32_t> begin_token;
  uint64_t fingerprint;
};

namespace {

// The added tokens of a SentencePiece model: its own control pieces that no file lists, and those
// of its folder's files.
TokenizerSpec SpecOf(const SentencePieceModel& model, std::vector<AddedToken> listed) {
  TokenizerSpec spec;
  spec.largest_id = model.size() - 1;
  for (int32_t id = 0; id < model.size(); ++id) {
    const auto same = [id](const AddedToken& token) { return token.id == id; };
    if (!model.IsControl(id) || std::any_of(listed.begin(), listed.end(), same)) continue;
    spec.added_tokens.push_back({.content = model.Piece(id), .id = id, .special = true});
  }
  for (AddedToken& token : listed) {
    spec.largest_id = std::max(spec.largest_id, token.id);
    spec.added_tokens.push_back(std::move(token));
  }
  return spec;
}

}  // namespace

Tokenizer Tokenizer::Read(const std::string& path, const std::vector<std::string>& added,
                          int64_t rows) {
  const std::string file = FileOf(path);
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const bool files = std::filesystem::path(file).filename() == "vocab.json";
  std::string bytes = files ? "" : ReadFile(file);
  Impl::Content content;
  int32_t largest = -1;  // of the vocabulary
  if (file.ends_with(".model")) {
    content.pieces = std::make_unique<SentencePieceModel>(bytes, file);
    AddedTokenFiles listed = ReadAddedTokens(folder);
    if (PrefixesFirstAlone(folder)) {
      const std::string behind = SentencePieceModel::WithoutPrefix(bytes);
      content.behind = std::make_unique<SentencePieceModel>(behind, file);
      bytes += "\nbehind";  // other ids than with one model alone
    }
    bytes += listed.text;
    content.spec = SpecOf(*content.pieces, std::move(listed.tokens));
    largest = content.pieces->size() - 1;
    AddTokens(
        added, [&](const std::string& text) { return content.pieces->Find(text); }, &content.spec);
  } else {
    if (files) {
      VocabularyFiles read = ReadVocabularyFiles(folder);
      content.spec = ReadTokenizerSpec(read.tokenizer, file);
      bytes = std::move(read.text);
    } else {
      content.spec = ReadTokenizerSpec(bytes, file);
    }
    const Vocabulary& vocabulary = content.spec.vocabulary;
    if (content.spec.largest_id >= rows) largest = LargestId(vocabulary);
    const auto find = [&](const std::string& text) -> std::optional<int32_t> {
      const auto found = vocabulary.find(text);
      return found == vocabulary.end() ? std::nullopt : std::optional(found->second);
    };
    AddTokens(added, find, &content.spec);
  }
  content.begin = ReadBeginToken(folder, content.spec.begin_token);
  if (content.spec.largest_id >= rows)
    LeaveOut(rows, content.begin, largest, &content.spec, &content.left_out);
  const uint64_t hash = HashOf(std::move(bytes), added, content.left_out);
  return Tokenizer(std::make_unique<const Impl>(std::move(content), file, hash));
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool parse_special,
                                       bool first) const {
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = ReplaceInvalidUtf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  if (parse_special) {
    impl_->EncodeWithTokens(text, first, ids);
  } else if (!text.empty()) {
    impl_->text->Encode(impl_->text->Normalized(text), first, ids);
  }
  return ids;
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::vector<TextModel::Token> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const AddedToken* added = FindAdded(id);
    if (added == nullptr || !skip_special || !added->special) tokens.push_back({id, added});
  }
  return ReplaceInvalidUtf8(impl_->text->Decode(tokens));
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const { return impl_->spec.added_tokens; }

const std::vector<AddedToken>& Tokenizer::left_out() const { return impl_->left_out; }

const AddedToken* Tokenizer::FindAdded(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return nullptr;
  const std::optional<AddedToken>& token = impl_->added[static_cast<size_t>(id)];
  return token ? &*token : nullptr;
}

void Tokenizer::SplitAdded(std::string_view text,
                           const std::function<void(std::string_view)>& plain,
                           const std::function<void(int32_t)>& token) const {
  impl_->all.Split(text, plain, token);
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  return impl_->Find(std::string(token));
}

std::optional<int32_t> Tokenizer::begin_token() const { return impl_->begin_token; }
int64_t Tokenizer::vocab_size() const { return int64_t{impl_->spec.largest_id} + 1; }
uint64_t Tokenizer::fingerprint() const { return impl_->fingerprint; }
const std::string& Tokenizer::source() const { return impl_->source; }

}  // namespace equipoise
