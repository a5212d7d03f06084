#include "tests/data/tiny_tokenizer.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/text/byte_alphabet.h"

namespace equipoise {
namespace {

constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json ByteLevel(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

}  // namespace

Json TinyTokenizerJson() {
  const ByteAlphabet alphabet;
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[alphabet.character(static_cast<uint8_t>(byte))] = byte;
  Json merges = Json::array();
  int next = 256;
  for (const auto& [left, right] : {std::pair<std::string, std::string>{"h", "e"},
                                    {"l", "l"},
                                    {"he", "ll"},
                                    {"hell", "o"},
                                    {"Ġ", "hello"},
                                    {"a", "a"},
                                    {"aa", "aa"},
                                    {"u", "s"}}) {
    vocab[left + right] = next++;
    merges.push_back({left, right});
  }
  Json added = Json::array();
  int id = 300;
  for (const char* token :
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"}) {
    added.push_back({{"id", id++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kQwen2Pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array({split, ByteLevel(false, false)})}}},
      {"decoder", ByteLevel(true, true)},
      {"model", {{"type", "BPE"}, {"unk_token", nullptr}, {"vocab", vocab}, {"merges", merges}}}};
}

Json TinyVideoTokenizerJson() {
  Json json = TinyTokenizerJson();
  json["added_tokens"].erase(5);  // <IMG_CONTEXT>
  int id = 320;
  for (const char* token : {"<image>", "<video>"})
    json["added_tokens"].push_back({{"id", id++}, {"content", token}, {"special", true}});
  return json;
}

Json TinyWordPieceJson() {
  Json vocab = Json::object(), added = Json::array();
  int next = 0;
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    added.push_back({{"id", next}, {"content", token}, {"special", true}});
    vocab[token] = next++;
  }
  for (const char* piece : {"un", "##able", "##a", "##ab", "cafe", ".", "'", "s", "12", "你"})
    vocab[piece] = next++;
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", vocab}}}};
}

Json TinyUnigramJson() {
  Json vocab = Json::array({{"<pad>", 0.0}, {"</s>", 0.0}, {"<unk>", 0.0}});
  for (const char* piece : {"▁", "x", "▁x", "It", "'", "s", "ca", "f", "12", "你"})
    vocab.push_back({piece, -1.5});
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
  const Json precompiled = {{"type", "Precompiled"}, {"precompiled_charsmap", "BAAAAAAAAAAA"}};
  return {
      {"version", "1.0"},
      {"added_tokens", Json::array({{{"id", 1}, {"content", "</s>"}, {"special", true}}})},
      {"normalizer", precompiled},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", Json::array({{{"type", "WhitespaceSplit"}}, metaspace})}}},
      {"decoder", metaspace},
      {"model", {{"type", "Unigram"}, {"unk_id", 2}, {"vocab", vocab}, {"byte_fallback", false}}}};
}

Tokenizer ReadTokenizerText(const std::string& text) {
  std::string folder =
      (std::filesystem::temp_directory_path() / "equipoise-tokenizer-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp");
  struct Remove {
    const std::string& folder;
    ~Remove() { std::filesystem::remove_all(folder); }
  } remove{folder};
  std::ofstream(folder + "/tokenizer.json", std::ios::binary) << text;
  return Tokenizer::Read(folder);
}

}  // namespace equipoise
