#include "data/text/vocabulary_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/regular_file.h"
#include "data/text/added_token_files.h"

namespace equipoise {
namespace {

constexpr size_t kMaxFile = size_t{1} << 30;

std::string PathIn(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

std::string ReadText(const std::string& path) {
  FileText file = ReadRegularFile(path, kMaxFile);
  if (!file.problem.empty()) throw DataError(path + ": " + file.problem);
  return std::move(file.text);
}

// A line for each merge, "left right", behind a first line that may be "#version: 0.2".
Json MergesOf(std::string_view text, const std::string& path) {
  Json merges = Json::array();
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == line.npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos) {
      throw DataError(fmt::format("{}:{}: is no merge of two tokens, \"a b\"", path, number));
    }
    merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  return merges;
}

// Names of special tokens in tokenizer_config.json, texts or objects.
std::set<std::string> SpecialTokensOf(const Json& config, const std::string& path) {
  std::set<std::string> texts = {"<|endoftext|>"};  // both classes' own
  const auto add = [&](const Json& token) {
    if (token.is_string()) texts.insert(token.get<std::string>());
    if (token.is_object()) texts.insert(GetString(token, "content", path));
  };
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (config.contains(key)) add(config[key]);
  }
  const auto more = config.find("additional_special_tokens");
  if (more == config.end() || !more->is_array()) return texts;
  for (const Json& token : *more) add(token);
  return texts;
}

Json AddedTokensOf(const std::vector<AddedToken>& listed, const std::set<std::string>& special,
                   const Json& vocabulary) {
  Json added = Json::array();
  std::set<std::string> known;
  for (const AddedToken& token : listed) {
    known.insert(token.content);
    added.push_back({{"content", token.content},
                     {"id", static_cast<uint32_t>(token.id)},
                     {"special", token.special},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", false}});
  }
  for (const std::string& text : special) {
    if (known.contains(text) || !vocabulary.contains(text)) continue;
    added.push_back({{"content", text}, {"id", vocabulary[text]}, {"special", true}});
  }
  return added;
}

// What cuts a text into words (`pre_tokenizer`) and stands before it (`normalizer`), by class.
Json StepsOf(const std::string& name) {
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  if (name == "GPT2Tokenizer") {
    Json words = bytes;
    words["use_regex"] = true;
    return {{"normalizer", nullptr}, {"pre_tokenizer", words}};
  }
  const char* pattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                        R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}}};
}

// The class of the tokenizer, without "Fast".
std::string ClassOf(const Json& config, const std::string& path) {
  std::string name = GetString(config, "tokenizer_class", path, "");
  if (name.ends_with("Fast")) name.resize(name.size() - std::string_view("Fast").size());
  if (name == "Qwen2Tokenizer" || name == "GPT2Tokenizer") return name;
  throw DataError(fmt::format(
      "{}: tokenizer_class '{}' is read from a tokenizer.json, which is not there; vocab.json and "
      "merges.txt alone do for Qwen2Tokenizer and GPT2Tokenizer. Write it with Transformers: "
      "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
      path, name));
}

}  // namespace

VocabularyFiles ReadVocabularyFiles(const std::string& folder) {
  const std::string settings = PathIn(folder, "tokenizer_config.json");
  const Json config = std::filesystem::exists(settings) ? ReadJsonFile(settings) : Json::object();
  if (!config.is_object()) throw DataError(settings + ": not an object");
  const std::string name = ClassOf(config, settings);
  const std::string vocab_path = PathIn(folder, "vocab.json");
  const std::string merges_path = PathIn(folder, "merges.txt");
  const std::string vocab = ReadText(vocab_path), merges = ReadText(merges_path);
  const AddedTokenFiles listed = ReadAddedTokens(folder);

  const Json vocabulary = ParseJson(vocab, vocab_path);
  if (!vocabulary.is_object()) throw DataError(vocab_path + ": not an object");
  VocabularyFiles files;
  files.tokenizer = StepsOf(name);
  files.tokenizer["model"] = {
      {"type", "BPE"}, {"vocab", vocabulary}, {"merges", MergesOf(merges, merges_path)}};
  files.tokenizer["decoder"] = {{"type", "ByteLevel"}};
  files.tokenizer["added_tokens"] =
      AddedTokensOf(listed.tokens, SpecialTokensOf(config, settings), vocabulary);
  files.text = vocab + merges + listed.text;
  return files;
}

}  // namespace equipoise
