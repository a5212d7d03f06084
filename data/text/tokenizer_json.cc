#include "data/text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "data/text/tokenizer_json_steps.h"

namespace equipoise {
namespace {

[[noreturn]] void Fail(const std::string& source, const std::string& message) {
  throw DataError(source + ": " + message);
}

const Json& Object(const Json& parent, const char* key, const std::string& source) {
  const auto found = parent.find(key);
  if (found == parent.end() || !found->is_object()) {
    Fail(source,
         fmt::format("{} is missing or no object; is this a tokenizer.json of Hugging Face?", key));
  }
  return *found;
}

// The text of a value for a message, cut where it is long.
std::string Quote(const std::string& text) {
  constexpr size_t kLongest = 40;
  return "'" + (text.size() <= kLongest ? text : text.substr(0, kLongest) + "...") + "'";
}

int32_t CheckedId(const Json& value, const std::string& token, const std::string& source) {
  if (!value.is_number_integer()) Fail(source, Quote(token) + ": the id is no whole number");
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() < uint64_t{kMaxTokenId};
  if (!fits) {
    Fail(source, fmt::format("{}: the id {} is outside 0..{}", Quote(token), value.dump(),
                             kMaxTokenId - 1));
  }
  return value.get<int32_t>();
}

// Reads one file section by section.
class Reader {
 public:
  Reader(const Json& root, const std::string& source) : root_(root), source_(source) {}

  TokenizerSpec Read() {
    const Json& model = Object(root_, "model", source_);
    CheckModel(model);
    if (TypeOf(model) == "Unigram") {
      ReadPieces(model);
    } else if (TypeOf(model) == "WordPiece") {
      ReadVocabulary(Object(model, "vocab", source_ + ": model"));
      ReadWordPiece(model);
    } else {
      ReadVocabulary(Object(model, "vocab", source_ + ": model"));
      ReadMerges(model);
      ReadOptions(model);
    }
    spec_.normalizer = ReadNormalizer(root_.value("normalizer", Json()), source_ + ": normalizer");
    ReadSteps(root_.value("pre_tokenizer", Json()), root_.value("decoder", Json()));
    spec_.begin_token =
        ReadTemplateBegin(root_.value("post_processor", Json()), source_ + ": post_processor");
    ReadAddedTokens();
    return std::move(spec_);
  }

 private:
  void CheckModel(const Json& model) const {
    const std::string at = source_ + ": model";
    const std::string type = TypeOf(model);
    if (type == "WordPiece") return;
    if (type != "BPE" && type != "Unigram") {
      Fail(at, "type " + Quote(type) + " is not supported; BPE, Unigram and WordPiece are");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!GetString(model, key, at, "").empty()) Fail(at, std::string(key) + " is not supported");
    }
    if (GetNumber(model, "dropout", at, 0) != 0)
      Fail(at, "dropout is not supported; set it to null");
  }

  // Old files do not name it: BPE's have merges.
  std::string TypeOf(const Json& model) const {
    const bool words = model.contains("max_input_chars_per_word") && !model.contains("merges");
    return GetString(model, "type", source_ + ": model", words ? "WordPiece" : "BPE");
  }

  void ReadWordPiece(const Json& model) {
    const std::string at = source_ + ": model";
    WordPieceModel::Options options;
    options.unknown = IdOfUnknown(GetString(model, "unk_token", at), at);
    options.prefix = GetString(model, "continuing_subword_prefix", at);
    const int64_t most = GetInt(model, "max_input_chars_per_word", at);
    if (most < 0) Fail(at, "max_input_chars_per_word is below 0");
    options.most_characters = static_cast<uint64_t>(most);
    spec_.word_piece = options;
  }

  // The vocabulary of a unigram model, [[piece, score]...].
  void ReadPieces(const Json& model) {
    const std::string at = source_ + ": model";
    const auto vocab = model.find("vocab");
    if (vocab == model.end() || !vocab->is_array() || vocab->empty())
      Fail(at, "vocab is missing, empty or no list");
    if (vocab->size() > static_cast<size_t>(kMaxTokenId)) Fail(at, "vocab has too many pieces");
    for (size_t i = 0; i < vocab->size(); ++i) {
      const Json& entry = (*vocab)[i];
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        Fail(fmt::format("{}.vocab[{}]", at, i), "is no [piece, score]");
      const auto id = static_cast<int32_t>(i);
      spec_.pieces.emplace_back(entry[0].get<std::string>(), entry[1].get<double>());
      spec_.vocabulary[spec_.pieces.back().first] = id;
      ids_.insert(id);
    }
    spec_.largest_id = static_cast<int32_t>(vocab->size()) - 1;
    spec_.options.byte_fallback = GetBool(model, "byte_fallback", at, false);
    const auto unknown = model.find("unk_id");
    if (unknown == model.end() || unknown->is_null()) return;
    spec_.options.unknown = CheckedId(*unknown, "unk_id", at);
    if (spec_.options.unknown > spec_.largest_id) Fail(at, "unk_id is not in vocab");
  }

  void ReadSteps(const Json& pre_tokenizer, const Json& decoder) {
    const std::string words = source_ + ": pre_tokenizer", back = source_ + ": decoder";
    if (!spec_.pieces.empty()) {
      spec_.metaspace = ReadUnigramSteps(pre_tokenizer, words, spec_.pre_tokenizer);
      spec_.decoder = ReadDecoder(decoder, back);
    } else if (spec_.word_piece) {
      spec_.pre_tokenizer = ReadWordPieceSteps(pre_tokenizer, words);
      spec_.decoder = ReadDecoder(decoder, back);
    } else if (spec_.options.byte_fallback) {
      spec_.metaspace = ReadMetaspace(pre_tokenizer, words);
      spec_.decoder = ReadDecoder(decoder, back);
    } else {
      spec_.pre_tokenizer = ReadPreTokenizer(pre_tokenizer, words);
      CheckDecoder(decoder, back);
    }
  }

  void ReadVocabulary(const Json& vocab) {
    const std::string at = source_ + ": model.vocab";
    spec_.vocabulary.reserve(vocab.size());
    for (const auto& [token, value] : vocab.items()) {
      const int32_t id = CheckedId(value, token, at);
      if (!ids_.insert(id).second) {
        Fail(at, fmt::format("{}: the id {} belongs to another token too", Quote(token), id));
      }
      spec_.vocabulary.emplace(token, id);
      spec_.largest_id = std::max(spec_.largest_id, id);
    }
    if (spec_.vocabulary.empty()) Fail(at, "is empty");
  }

  void ReadMerges(const Json& model) {
    const auto merges = model.find("merges");
    if (merges == model.end() || !merges->is_array()) {
      Fail(source_ + ": model", "merges is missing or no list");
    }
    spec_.merges.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); ++i) {
      const auto [left, right] = MergeOf((*merges)[i], i);
      spec_.merges.push_back({IdInMerge(left, i), IdInMerge(right, i), IdInMerge(left + right, i)});
    }
  }

  int32_t IdInMerge(const std::string& token, size_t merge) const {
    const auto found = spec_.vocabulary.find(token);
    if (found == spec_.vocabulary.end()) {
      FailMerge(
          merge,
          Quote(token) + " is not in model.vocab; vocabulary and merges are not of one tokenizer");
    }
    return found->second;
  }

  // Two forms: "a b", and ["a", "b"] as newer files have it.
  std::pair<std::string, std::string> MergeOf(const Json& merge, size_t index) const {
    if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      const bool two_parts = space != std::string::npos && space > 0 && space + 1 < text.size() &&
                             text.find(' ', space + 1) == std::string::npos;
      if (two_parts) return {text.substr(0, space), text.substr(space + 1)};
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      std::pair<std::string, std::string> parts{merge[0].get<std::string>(),
                                                merge[1].get<std::string>()};
      if (!parts.first.empty() && !parts.second.empty()) return parts;
    }
    FailMerge(index, "is neither \"a b\" nor [\"a\", \"b\"]");
  }

  [[noreturn]] void FailMerge(size_t index, const std::string& message) const {
    Fail(fmt::format("{}: model.merges[{}]", source_, index), message);
  }

  void ReadOptions(const Json& model) {
    const std::string at = source_ + ": model";
    spec_.options.ignore_merges = GetBool(model, "ignore_merges", at, false);
    spec_.options.fuse_unknown = GetBool(model, "fuse_unk", at, false);
    spec_.options.byte_fallback = GetBool(model, "byte_fallback", at, false);
    const std::string unknown = GetString(model, "unk_token", at, "");
    if (!unknown.empty()) spec_.options.unknown = IdOfUnknown(unknown, at);
  }

  int32_t IdOfUnknown(const std::string& token, const std::string& at) const {
    const auto found = spec_.vocabulary.find(token);
    if (found == spec_.vocabulary.end())
      Fail(at, "unk_token " + Quote(token) + " is not in model.vocab");
    return found->second;
  }

  void ReadAddedTokens() {
    const auto list = root_.find("added_tokens");
    if (list == root_.end() || list->is_null()) return;
    if (!list->is_array()) Fail(source_, "added_tokens is no list");
    std::unordered_set<std::string> contents;
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string at = fmt::format("{}: added_tokens[{}]", source_, i);
      AddedToken token = ReadAddedToken((*list)[i], at);
      if (!contents.insert(token.content).second)
        Fail(at, Quote(token.content) + " is listed twice");
      const auto known = spec_.vocabulary.find(token.content);
      const bool same = known != spec_.vocabulary.end() && known->second == token.id;
      if (known != spec_.vocabulary.end() && !same) {
        Fail(at, fmt::format("{} has id {} here and id {} in model.vocab", Quote(token.content),
                             token.id, known->second));
      }
      if (!same && !ids_.insert(token.id).second) {
        Fail(at, fmt::format("{}: the id {} belongs to another token too", Quote(token.content),
                             token.id));
      }
      spec_.largest_id = std::max(spec_.largest_id, token.id);
      spec_.added_tokens.push_back(std::move(token));
    }
  }

  static AddedToken ReadAddedToken(const Json& entry, const std::string& at) {
    if (!entry.is_object()) Fail(at, "is no object");
    AddedToken token;
    token.content = GetString(entry, "content", at);
    if (token.content.empty())
      Fail(at, "content is empty, which would match everywhere; remove the entry");
    token.id = CheckedId(entry.value("id", Json()), token.content, at);
    token.special = GetBool(entry, "special", at, false);
    token.single_word = GetBool(entry, "single_word", at, false);
    token.lstrip = GetBool(entry, "lstrip", at, false);
    token.rstrip = GetBool(entry, "rstrip", at, false);
    token.normalized = GetBool(entry, "normalized", at, !token.special);
    return token;
  }

  const Json& root_;
  const std::string& source_;
  TokenizerSpec spec_;
  std::unordered_set<int32_t> ids_;
};

}  // namespace

TokenizerSpec ReadTokenizerSpec(const std::string& text, const std::string& source) {
  return ReadTokenizerSpec(ParseJson(text, source), source);
}

TokenizerSpec ReadTokenizerSpec(const Json& root, const std::string& source) {
  if (!root.is_object()) Fail(source, "is no JSON object");
  return Reader(root, source).Read();
}

}  // namespace equipoise
