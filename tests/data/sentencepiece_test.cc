// Tokenizers of folders that have a tokenizer.model alone.
#include <sentencepiece_trainer.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "data/text/tokenizer.h"
#include "tests/data/temporary_folder.h"
#include "tests/skip_case.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using Ids = std::vector<int32_t>;

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// A model of 300 pieces with all bytes, trained here; `prefix`: a space is put before the text.
void TrainModel(const std::string& folder, bool prefix = false) {
  std::string lines;
  for (int i = 0; i < 50; ++i)
    lines += "the quick brown fox jumps over the lazy dog\nhello world\n";
  Write(folder + "/text", lines);
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + folder + "/text --model_prefix=" + folder +
      "/tokenizer --vocab_size=300 --model_type=bpe --byte_fallback=true "
      "--remove_extra_whitespaces=false --normalization_rule_name=identity --minloglevel=2 "
      "--add_dummy_prefix=" +
      (prefix ? "true" : "false"));
  REQUIRE(status.ok());
}

TEST_CASE("a folder's tokenizer.model is read where there is no tokenizer.json", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string where = folder.path();
  TrainModel(where);
  Write(where + "/tokenizer_config.json",
        R"({"added_tokens_decoder": {"300": {"content": "<|im_end|>", "special": true},
                                     "301": {"content": "<IMG_CONTEXT>", "special": true}}})");
  Write(where + "/added_tokens.json", R"({"<|im_end|>": 7})");  // the older list
  const Tokenizer tokenizer = Tokenizer::Read(where);
  CHECK(tokenizer.vocab_size() == 302);
  CHECK(tokenizer.TokenId("<|im_end|>") == 300);
  CHECK(tokenizer.TokenId("<IMG_CONTEXT>") == 301);
  CHECK(tokenizer.TokenId("</s>") == 2);
  CHECK(tokenizer.TokenId("nothing like it") == std::nullopt);

  const std::string text = "hello world<|im_end|>\nthe fox \xc3\xa9 <IMG_CONTEXT><IMG_CONTEXT>";
  const Ids ids = tokenizer.Encode(text, /*parse_special=*/true);
  CHECK(std::count(ids.begin(), ids.end(), 300) == 1);
  CHECK(std::count(ids.begin(), ids.end(), 301) == 2);
  CHECK(tokenizer.Decode(ids, /*skip_special=*/false) == text);
  CHECK(tokenizer.Decode(ids, /*skip_special=*/true) == "hello world\nthe fox \xc3\xa9 ");
  const Ids plain = tokenizer.Encode(text, /*parse_special=*/false);
  CHECK(std::count(plain.begin(), plain.end(), 300) == 0);
  CHECK(tokenizer.Decode(plain, false) == text);
  CHECK(tokenizer.Encode("", true).empty());

  const uint64_t before = tokenizer.fingerprint();
  Write(where + "/tokenizer_config.json", "{}");
  const Tokenizer older = Tokenizer::Read(where);
  CHECK(older.fingerprint() != before);
  CHECK(older.TokenId("<|im_end|>") == 7);
  CHECK(older.TokenId("<IMG_CONTEXT>") == std::nullopt);
}

TEST_CASE("no text makes the id of a piece that an added token has taken", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string where = folder.path();
  TrainModel(where);
  const Ids ids = Tokenizer::Read(where).Encode("the fox", /*parse_special=*/false);
  const auto longest = std::max_element(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const Tokenizer tokenizer = Tokenizer::Read(where);
    return tokenizer.Decode({a}, false).size() < tokenizer.Decode({b}, false).size();
  });
  Write(where + "/tokenizer_config.json", R"({"added_tokens_decoder": {")" +
                                              std::to_string(*longest) +
                                              R"(": {"content": "<|im_end|>"}}})");
  const Tokenizer tokenizer = Tokenizer::Read(where);
  const Ids now = tokenizer.Encode("the fox", false);
  CHECK(std::count(now.begin(), now.end(), *longest) == 0);
  CHECK(tokenizer.Decode(now, false) == "the fox");
  CHECK(tokenizer.Encode("<|im_end|>", true) == Ids{*longest});
  CHECK(tokenizer.Decode({*longest, tokenizer.TokenId("</s>").value(), 1 << 20}, true) ==
        "<|im_end|>");
}

TEST_CASE("tokens are added behind those of the folder's files", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string where = folder.path();
  TrainModel(where);
  for (const char* config : {"{}", R"({"added_tokens_decoder": {"300": {"content": "<box>"}}})"}) {
    Write(where + "/tokenizer_config.json", config);
    const Tokenizer plain = Tokenizer::Read(where);
    const Tokenizer tokenizer = Tokenizer::Read(where, {"</s>", "<image>"});
    const auto id = static_cast<int32_t>(plain.vocab_size());
    CHECK(tokenizer.vocab_size() == id + 1);
    CHECK(tokenizer.TokenId("<image>") == id);
    CHECK(tokenizer.TokenId("</s>") == 2);
    Ids ids = plain.Encode("the fox", true);
    ids.push_back(id);
    CHECK(tokenizer.Encode("the fox<image>", true) == ids);
    CHECK(tokenizer.Decode(ids, /*skip_special=*/false) == "the fox<image>");
    CHECK(tokenizer.fingerprint() != plain.fingerprint());
  }
}

TEST_CASE("a folder's added tokens without a row are text", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string where = folder.path();
  TrainModel(where);
  const Tokenizer plain = Tokenizer::Read(where);
  Write(where + "/added_tokens.json", R"({"<pad>": 302})");
  const Tokenizer tokenizer = Tokenizer::Read(where, {}, plain.vocab_size());
  CHECK(tokenizer.vocab_size() == plain.vocab_size());
  REQUIRE(tokenizer.left_out().size() == 1);
  CHECK(tokenizer.left_out()[0].content == "<pad>");
  CHECK(tokenizer.Encode("the <pad>", true) == plain.Encode("the <pad>", true));
  CHECK(Tokenizer::Read(where).TokenId("<pad>") == 302);
}

TEST_CASE("what is put before a text is told by tokenizer_config.json", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string where = folder.path();
  TrainModel(where);
  struct Row {
    const char* config;
    std::optional<int32_t> begin;
  };
  for (const Row& row :
       {Row{R"({})", std::nullopt},
        {R"({"tokenizer_class": "InternLM2Tokenizer"})", 1},
        {R"({"tokenizer_class": "InternLM2Tokenizer", "add_bos_token": false})", std::nullopt},
        {R"({"add_bos_token": true, "bos_token": {"content": "<s>"}})", 1},
        {R"({"tokenizer_class": "LlamaTokenizer"})", 1},
        {R"({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": null})", 1},
        {R"({"tokenizer_class": "Qwen2Tokenizer", "bos_token": "<s>"})", std::nullopt},
        {R"({"add_bos_token": true, "bos_token": null})", std::nullopt}}) {
    INFO(row.config);
    Write(where + "/tokenizer_config.json", row.config);
    CHECK(Tokenizer::Read(where).begin_token() == row.begin);
  }
}

TEST_CASE("a space is put before the first text alone where LLaMA's class says so", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string where = folder.path();
  TrainModel(where, /*prefix=*/true);
  const auto ids = [&](const char* config, const char* text, bool first = true) {
    Write(where + "/tokenizer_config.json", config);
    return Tokenizer::Read(where).Encode(text, /*parse_special=*/true, first);
  };
  constexpr char kFirst[] = R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})";
  for (const char* each :
       {R"({"tokenizer_class": "LlamaTokenizer", "legacy": true})", R"({"legacy": false})",
        R"({"tokenizer_class": "LlamaTokenizerFast", "legacy": null})"}) {
    INFO(each);
    const Ids one = ids(each, "the fox");
    Ids both = one;
    both.push_back(2);
    both.insert(both.end(), one.begin(), one.end());
    CHECK(ids(each, "the fox</s>the fox") == both);
    CHECK(ids(each, "the fox", /*first=*/false) == one);
  }
  CHECK(ids(kFirst, "the fox") == ids("{}", "the fox"));
  CHECK(ids(kFirst, " the fox") == ids("{}", "the fox"));
  CHECK(ids(kFirst, "</s> the fox") == ids("{}", "</s>the fox"));
  CHECK(ids(kFirst, "</s>the fox") != ids("{}", "</s>the fox"));
  CHECK(ids(kFirst, "the fox", false) != ids("{}", "the fox"));
  Write(where + "/tokenizer_config.json", kFirst);
  const Tokenizer tokenizer = Tokenizer::Read(where);
  for (const std::string text : {"the fox</s>the fox", "the fox</s> the fox", "</s>the  fox "})
    CHECK(tokenizer.Decode(tokenizer.Encode(text, true), /*skip_special=*/false) == text);
}

TEST_CASE("a damaged tokenizer.model, or list of tokens, is refused with its name", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string where = folder.path();
  Write(where + "/tokenizer.model", "no model");
  CHECK_THROWS_WITH(Tokenizer::Read(where), Contains("tokenizer.model: is no SentencePiece model"));
  Write(where + "/tokenizer.model", "");
  CHECK_THROWS_AS(Tokenizer::Read(where), DataError);
  TrainModel(where);
  // The library would follow a table of one node to its children.
  std::ofstream(where + "/tokenizer.model", std::ios::binary | std::ios::app)
      << std::string("\x1a\xb\x12\x9\4\0\0\0\0\4\0\0\0", 13);
  CHECK_THROWS_WITH(Tokenizer::Read(where),
                    Contains("tokenizer.model: precompiled_charsmap is damaged"));
  // 512 nodes: the root's children are the second half, where NUL leads outside.
  std::string nodes(512 * 4, '\0');
  const auto set = [&nodes](size_t node, uint32_t unit) {
    for (size_t i = 0; i < 4; ++i) nodes[4 * node + i] = static_cast<char>(unit >> 8 * i);
  };
  set(0, 256 << 10);
  set(256, 1024 << 10);
  TrainModel(where);
  std::ofstream(where + "/tokenizer.model", std::ios::binary | std::ios::app)
      << std::string("\x1a\x88\x10\x12\x85\x10\0\x8\0\0", 10) << nodes << std::string(1, '\0');
  CHECK_THROWS_WITH(Tokenizer::Read(where),
                    Contains("tokenizer.model: precompiled_charsmap is damaged"));
  TrainModel(where);
  for (const char* list : {"[]", R"({"a": -1})", R"({"a": "b"})", R"({"a": 99999999})"}) {
    INFO(list);
    Write(where + "/added_tokens.json", list);
    CHECK_THROWS_WITH(Tokenizer::Read(where), Contains("added_tokens.json"));
  }
}

TEST_CASE("ids are those of the sentencepiece library", "[data][cpu][fixtures]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) return testing::SkipCase("no fixtures");
  for (const char* name : {"internlm2", "llama2", "mistral-v3", "chinese-llama"}) {
    const std::string folder = std::string(fixtures) + "/tokenizers/" + name;
    const Tokenizer tokenizer = Tokenizer::Read(folder + "/tokenizer.model");
    int wrong = 0, undone = 0;
    const Json cases = ReadJsonFile(folder + "/cases.json");
    for (const Json& each : cases["cases"]) {
      const std::string text = each["text"].get<std::string>();
      const Ids ids = each["ids"].get<Ids>();
      wrong += tokenizer.Encode(text, /*parse_special=*/false) != ids ? 1 : 0;
      const std::string decoded =
          each.contains("decoded") ? each["decoded"].get<std::string>() : text;
      undone += tokenizer.Decode(ids, /*skip_special=*/false) != decoded ? 1 : 0;
    }
    INFO(name);
    CHECK(wrong == 0);
    CHECK(undone == 0);
  }
}

}  // namespace
}  // namespace equipoise
