#include "data/text/tokenizer.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <thread>

#include "configs/base/error.h"
#include "data/text/tokenize_lines.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/tiny_tokenizer.h"

namespace equipoise {
namespace {

using Ids = std::vector<int32_t>;

TEST_CASE("words are cut by the pattern and merged by rank", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  CHECK(tokenizer.Encode("", true).empty());
  CHECK(tokenizer.Encode("hello", true) == Ids{259});
  CHECK(tokenizer.Encode("hello hello", true) == Ids{259, 260});
  CHECK(tokenizer.Encode("hell", true) == Ids{258});
  CHECK(tokenizer.Encode("aaaaa", true) == Ids{262, 'a'});
  CHECK(tokenizer.Encode("a12", true) == Ids{'a', '1', '2'});
  // The decomposed e + U+0301 is composed by NFC to two bytes.
  CHECK(tokenizer.Encode("e\xCC\x81", true) == Ids{0xC3, 0xA9});
  CHECK(tokenizer.vocab_size() == 306);
}

TEST_CASE("special tokens are recognised only when asked for", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  CHECK(tokenizer.Encode("<|im_start|>us<|im_end|>", true) == Ids{301, 263, 302});
  const Ids plain = tokenizer.Encode("<|im_end|>", false);
  CHECK(plain.size() > 1);
  CHECK(tokenizer.Decode(plain, false) == "<|im_end|>");
  CHECK(tokenizer.TokenId("<|im_end|>") == 302);
  CHECK(tokenizer.TokenId("hello") == 259);
  CHECK_FALSE(tokenizer.TokenId("nothing").has_value());
}

TEST_CASE("missing tokens are added behind the largest id", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("tokenizer.json", TinyTokenizerJson().dump());
  const Tokenizer plain = Tokenizer::Read(path);
  // One that is an added token, one of the vocabulary's, and two new ones.
  const Tokenizer tokenizer = Tokenizer::Read(path, {"<|im_end|>", "hello", "<image>", "<quad>"});
  CHECK(plain.vocab_size() == 306);
  CHECK(tokenizer.vocab_size() == 308);
  CHECK(tokenizer.TokenId("<|im_end|>") == 302);
  CHECK(tokenizer.TokenId("<image>") == 306);
  CHECK(tokenizer.TokenId("<quad>") == 307);
  CHECK(tokenizer.Encode("aa<image>hello", true) == Ids{261, 306, 259});
  CHECK(tokenizer.Encode("<image>", false) == plain.Encode("<image>", false));
  CHECK(tokenizer.Decode({'a', 306, 'b'}, /*skip_special=*/true) == "ab");
  CHECK(tokenizer.Decode({306, 307}, /*skip_special=*/false) == "<image><quad>");
  REQUIRE(tokenizer.FindAdded(259) != nullptr);
  CHECK(tokenizer.FindAdded(259)->special);
  CHECK(tokenizer.fingerprint() != plain.fingerprint());
  CHECK(Tokenizer::Read(path, {}).fingerprint() == plain.fingerprint());
}

TEST_CASE("added tokens without a row are text", "[data][cpu]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("tokenizer.json", TinyTokenizerJson().dump());
  const Tokenizer whole = Tokenizer::Read(path), same = Tokenizer::Read(path, {}, 306);
  CHECK(whole.left_out().empty());
  CHECK(same.left_out().empty());
  CHECK(same.fingerprint() == whole.fingerprint());
  const Tokenizer some = Tokenizer::Read(path, {}, 304);
  CHECK(some.vocab_size() == 304);
  REQUIRE(some.left_out().size() == 2);
  CHECK(some.left_out()[0].content == "</img>");
  CHECK(some.left_out()[1].id == 305);
  CHECK(some.Encode("a</img><img>", true) == [&] {
    Ids ids = whole.Encode("a</img>", false);
    ids.push_back(303);
    return ids;
  }());
  CHECK_FALSE(some.TokenId("</img>").has_value());
  CHECK(some.FindAdded(304) == nullptr);
  CHECK(some.fingerprint() != whole.fingerprint());
  CHECK(some.fingerprint() != Tokenizer::Read(path, {}, 305).fingerprint());
  // The vocabulary itself stays, whatever the rows.
  CHECK(Tokenizer::Read(path, {}, 100).vocab_size() == 264);
}

TEST_CASE("the token before a text is never left out", "[data][cpu]") {
  const TemporaryFolder folder;
  Json json = TinyTokenizerJson();
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<IMG_CONTEXT>"}}}}}}};
  const Tokenizer tokenizer = Tokenizer::Read(folder.Write("tokenizer.json", json.dump()), {}, 304);
  CHECK(tokenizer.begin_token() == 305);
  CHECK(tokenizer.vocab_size() == 306);
  CHECK(tokenizer.left_out().size() == 1);
}

TEST_CASE("decoding gives the text back", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  for (const std::string text :
       {"hello, wörld\n\t 1234", "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80",
        "\xE4\xBD\xA0\xE5\xA5\xBD  \r\n", "it's I'LL"}) {
    CHECK(tokenizer.Decode(tokenizer.Encode(text, true), false) == text);
  }
  CHECK(tokenizer.Decode({301, 259, 302}, /*skip_special=*/true) == "hello");
  CHECK(tokenizer.Decode({259, 99999, -1, 280}, false) == "hello");
  CHECK(tokenizer.Decode({0xE4, 0xBD}, false) == "\xEF\xBF\xBD");
}

TEST_CASE("invalid UTF-8 is read as U+FFFD", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  const Ids replaced = tokenizer.Encode("a\xEF\xBF\xBDz", true);
  for (const std::string text : {"a\xFFz", "a\xC0z", "a\xE4\xBDz", "a\xF0\x9F\x91z"}) {
    CHECK(tokenizer.Encode(text, true) == replaced);
  }
}

TEST_CASE("hostile text takes no quadratic time", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  constexpr size_t kLong = 1'000'000;
  CHECK(tokenizer.Encode(std::string(kLong, 'a'), true).size() == kLong / 4);
  CHECK(tokenizer.Encode(std::string(kLong, ' '), true).size() == kLong);
  CHECK(tokenizer.Encode(std::string(kLong, '<'), true).size() == kLong);
  // Combining marks of alternating classes, in the worst order for sorting by neighbours.
  std::string marks = "a";
  for (size_t i = 0; i < kLong / 4; ++i) marks += "\xCC\x81\xCC\xA7";
  CHECK(tokenizer.Encode(marks, true).size() > kLong / 2);
}

TEST_CASE("threads share a tokenizer", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) texts.push_back("hello number " + std::to_string(i * 7919));
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.Encode(text, true));
  std::vector<std::vector<Ids>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (const std::string& text : texts) result.push_back(tokenizer.Encode(text, true));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == expected);
}

TEST_CASE("TokenizeLines writes one list a line", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  std::istringstream in("hello\n\nhello\r\nus\xC2\x85us<|im_end|>");
  std::ostringstream out;
  TokenizeLines(tokenizer, in, out);
  CHECK(out.str() == "[259]\n[]\n[259, 13]\n[263, 194, 133, 263, 302]\n");
}

TEST_CASE("the fingerprint changes with the file", "[data][cpu]") {
  Json json = TinyTokenizerJson();
  const uint64_t before = ReadTokenizerJson(json).fingerprint();
  CHECK(ReadTokenizerJson(json).fingerprint() == before);
  json["model"]["vocab"]["us"] = 270;
  CHECK(ReadTokenizerJson(json).fingerprint() != before);
}

// The message of the DataError that reading `text` throws.
std::string ErrorOf(const std::string& text) {
  try {
    ReadTokenizerText(text);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

struct Attack {
  const char* name;
  const char* message;  // a part of the error
  std::function<void(Json&)> change;
};

Json Split(const char* pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

void SetFirstStep(Json& json, const Json& step) {
  json["pre_tokenizer"]["pretokenizers"][0] = step;
}

// BPE with byte fallback in Metaspace's form.
void SetFallback(Json& json) {
  json["model"]["byte_fallback"] = true;
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"prepend_scheme", "first"}, {"split", false}};
  json["decoder"] = {{"type", "ByteFallback"}};
}

void SetNoDecoder(Json& json) {
  SetFallback(json);
  json["decoder"] = nullptr;
}

const std::vector<Attack>& Attacks() {
  static const std::vector<Attack> kAttacks = {
      {"no model", "model is missing", [](Json& j) { j.erase("model"); }},
      {"WordLevel", "'WordLevel' is not supported",
       [](Json& j) { j["model"]["type"] = "WordLevel"; }},
      {"WordPiece without its unknown token", "unk_token",
       [](Json& j) { j["model"]["type"] = "WordPiece"; }},
      {"Unigram with the words of BPE", "vocab is missing, empty or no list",
       [](Json& j) { j["model"]["type"] = "Unigram"; }},
      {"byte fallback", "byte_fallback", [](Json& j) { j["model"]["byte_fallback"] = true; }},
      {"a step of BPE with byte fallback", "supported are none and Metaspace",
       [](Json& j) { j["model"]["byte_fallback"] = true; }},
      {"byte fallback without decoder", "decoder: there is none", SetNoDecoder},
      {"a pattern to replace", "is broken",
       [](Json& j) {
         j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "( "}}}, {"content", "_"}};
       }},
      {"nothing to replace", "pattern is empty",
       [](Json& j) {
         j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "_"}};
       }},
      {"other prepend scheme", "prepend_scheme 'last'",
       [](Json& j) {
         SetFallback(j);
         j["pre_tokenizer"]["prepend_scheme"] = "last";
       }},
      {"a long replacement", "is not one character",
       [](Json& j) {
         SetFallback(j);
         j["pre_tokenizer"]["replacement"] = "__";
       }},
      {"spaces cut off the end", "only a character at the beginning",
       [](Json& j) {
         SetFallback(j);
         j["decoder"] = {{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}};
       }},
      {"other decoder of byte fallback", "'CTC' is not supported",
       [](Json& j) {
         SetFallback(j);
         j["decoder"] = {{"type", "CTC"}};
       }},
      {"dropout", "dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }},
      {"word suffix", "end_of_word_suffix",
       [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }},
      {"no vocabulary", "vocab is missing", [](Json& j) { j["model"].erase("vocab"); }},
      {"vocabulary is a list", "vocab is missing or no object",
       [](Json& j) { j["model"]["vocab"] = Json::array(); }},
      {"empty vocabulary", "is empty", [](Json& j) { j["model"]["vocab"] = Json::object(); }},
      {"duplicate id", "belongs to another token",
       [](Json& j) { j["model"]["vocab"]["us"] = 256; }},
      {"negative id", "outside 0..", [](Json& j) { j["model"]["vocab"]["us"] = -1; }},
      {"huge id", "outside 0..", [](Json& j) { j["model"]["vocab"]["us"] = 4294967296; }},
      {"fractional id", "no whole number", [](Json& j) { j["model"]["vocab"]["us"] = 1.5; }},
      {"id as text", "no whole number", [](Json& j) { j["model"]["vocab"]["us"] = "7"; }},
      {"no merges", "merges is missing", [](Json& j) { j["model"].erase("merges"); }},
      {"merge of an unknown token", "merges[8]: 'q'",
       [](Json& j) {
         j["model"]["vocab"].erase("q");
         j["model"]["merges"].push_back("q u");
       }},
      {"merge into an unknown token", "'qu' is not in model.vocab",
       [](Json& j) { j["model"]["merges"].push_back("q u"); }},
      {"merge of one part", "merges[8]: is neither",
       [](Json& j) { j["model"]["merges"].push_back("qu"); }},
      {"merge of three parts", "is neither",
       [](Json& j) { j["model"]["merges"].push_back("a b c"); }},
      {"merge of three elements", "is neither",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "b", "c"});
       }},
      {"merge as a number", "is neither", [](Json& j) { j["model"]["merges"].push_back(5); }},
      {"merge with an empty part", "is neither",
       [](Json& j) {
         j["model"]["merges"].push_back({"", "a"});
       }},
      {"unknown unk_token", "unk_token", [](Json& j) { j["model"]["unk_token"] = "<unk>"; }},
      {"empty added token", "content is empty",
       [](Json& j) { j["added_tokens"][0]["content"] = ""; }},
      {"added token without content", "content",
       [](Json& j) { j["added_tokens"][0].erase("content"); }},
      {"added token without id", "no whole number",
       [](Json& j) { j["added_tokens"][0].erase("id"); }},
      {"added token twice", "listed twice",
       [](Json& j) { j["added_tokens"][0]["content"] = "<img>"; }},
      {"added id twice", "belongs to another", [](Json& j) { j["added_tokens"][0]["id"] = 301; }},
      {"added id of a word", "belongs to another", [](Json& j) { j["added_tokens"][0]["id"] = 5; }},
      {"added token of other id", "in model.vocab",
       [](Json& j) { j["added_tokens"][0]["content"] = "us"; }},
      {"added tokens no list", "added_tokens is no list", [](Json& j) { j["added_tokens"] = 3; }},
      {"flag of a wrong type", "special", [](Json& j) { j["added_tokens"][0]["special"] = "yes"; }},
      {"no pre-tokenizer", "byte-level", [](Json& j) { j["pre_tokenizer"] = nullptr; }},
      {"other pre-tokenizer", "'Metaspace'",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {"other step", "'Punctuation' is not supported",
       [](Json& j) {
         SetFirstStep(j, {{"type", "Punctuation"}});
       }},
      {"step no object", "is no object", [](Json& j) { SetFirstStep(j, 7); }},
      {"empty sequence", "sequence is empty",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"] = Json::array(); }},
      {"other normalizer", "'Nmt' is not supported",
       [](Json& j) { j["normalizer"]["type"] = "Nmt"; }},
      {"other decoder", "'Metaspace' is not supported",
       [](Json& j) { j["decoder"]["type"] = "Metaspace"; }},
      {"broken pattern", "is broken", [](Json& j) { SetFirstStep(j, Split("(a")); }},
      {"pattern that matches nothing", "empty text", [](Json& j) { SetFirstStep(j, Split("a*")); }},
      {"verb", "a verb", [](Json& j) { SetFirstStep(j, Split("(*LIMIT_MATCH=1)a")); }},
      {"class intersection", "intersection", [](Json& j) { SetFirstStep(j, Split("[a-z&&b]")); }},
      {"anchor", "anchor", [](Json& j) { SetFirstStep(j, Split("^a")); }},
      {"back reference", "\\1", [](Json& j) { SetFirstStep(j, Split("(a)\\1")); }},
      {"unknown property", "the property 'Klingon'",
       [](Json& j) { SetFirstStep(j, Split("\\p{Klingon}")); }},
      {"other behaviour", "behavior 'Whole'",
       [](Json& j) {
         Json step = Split("a");
         step["behavior"] = "Whole";
         SetFirstStep(j, step);
       }},
  };
  return kAttacks;
}

const std::vector<Attack>& WordPieceAttacks() {
  static const std::vector<Attack> kAttacks = {
      {"no unknown token", "unk_token: missing", [](Json& j) { j["model"].erase("unk_token"); }},
      {"an unknown token that is not known", "unk_token '[unk]' is not in model.vocab",
       [](Json& j) { j["model"]["unk_token"] = "[unk]"; }},
      {"no prefix", "continuing_subword_prefix: missing",
       [](Json& j) { j["model"].erase("continuing_subword_prefix"); }},
      {"no longest word", "max_input_chars_per_word",
       [](Json& j) { j["model"].erase("max_input_chars_per_word"); }},
      {"words of less than nothing", "max_input_chars_per_word is below 0",
       [](Json& j) { j["model"]["max_input_chars_per_word"] = -1; }},
      {"half a character", "max_input_chars_per_word",
       [](Json& j) { j["model"]["max_input_chars_per_word"] = 1.5; }},
      {"vocabulary is a list", "vocab is missing or no object",
       [](Json& j) { j["model"]["vocab"] = Json::array(); }},
      {"duplicate id", "belongs to another token", [](Json& j) { j["model"]["vocab"]["un"] = 1; }},
      {"no decoder", "decoder: there is none", [](Json& j) { j["decoder"] = nullptr; }},
      {"decoder without prefix", "decoder: prefix: missing",
       [](Json& j) { j["decoder"].erase("prefix"); }},
      {"decoder's clean-up as text", "cleanup", [](Json& j) { j["decoder"]["cleanup"] = "yes"; }},
      {"bytes", "'ByteLevel' is not supported with WordPiece",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "ByteLevel"}};
       }},
      {"step no object", "pre_tokenizer[1]: is no object",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", {{{"type", "BertPreTokenizer"}}, 7}}};
       }},
      {"a flag of the normalizer is missing", "clean_text",
       [](Json& j) { j["normalizer"].erase("clean_text"); }},
      {"a flag of the normalizer as text", "strip_accents",
       [](Json& j) { j["normalizer"]["strip_accents"] = "no"; }},
      {"first token as a number", "post_processor: cls is no token",
       [](Json& j) {
         j["post_processor"]["cls"] = {2, "[CLS]"};
       }},
      {"no first token", "post_processor: cls is missing",
       [](Json& j) { j["post_processor"].erase("cls"); }},
  };
  return kAttacks;
}

void CheckRefused(Json json, const Attack& attack) {
  attack.change(json);
  const std::string error = ErrorOf(json.dump());
  INFO(attack.name << ": " << error);
  CHECK(error.find(attack.message) != std::string::npos);
  CHECK(error.find("tokenizer.json: ") != std::string::npos);
  CHECK(error.find('\n') == std::string::npos);
}

TEST_CASE("a WordPiece file gives BERT's ids, text and first token", "[data][cpu]") {
  Json json = TinyWordPieceJson();
  const Tokenizer tokenizer = ReadTokenizerJson(json);
  const Ids ids = {5, 6, 9, 11, 12, 14, 13, 1, 2};
  CHECK(tokenizer.Encode("UNABLE  Caf\xC3\xA9's\xE4\xBD\xA0"
                         "12 unx[CLS]",
                         true) == ids);
  CHECK(tokenizer.Decode(ids, true) == "unable cafe ' s \xE4\xBD\xA0 12");
  CHECK(tokenizer.begin_token() == 2);
  json["post_processor"]["type"] = "RobertaProcessing";
  CHECK(ReadTokenizerJson(json).begin_token() == 2);
  json["post_processor"] = nullptr;
  json["model"].erase("type");  // as old files have it
  CHECK_FALSE(ReadTokenizerJson(json).begin_token());
  CHECK(ReadTokenizerJson(json).Encode("unable", true) == Ids{5, 6});
}

TEST_CASE("damaged and unsupported files are refused by name", "[data][cpu]") {
  for (const Attack& attack : WordPieceAttacks()) CheckRefused(TinyWordPieceJson(), attack);
  for (const Attack& attack : Attacks()) CheckRefused(TinyTokenizerJson(), attack);
  for (const std::string text :
       {"", "[]", "{", "nul", "\xFF", "{\"model\":{\"vocab\":{\"a\":0,\"a\":1}}}"}) {
    INFO(text);
    CHECK(ErrorOf(text).find("tokenizer.json:") != std::string::npos);
  }
}

TEST_CASE("a missing file is named, with the way out", "[data][cpu]") {
  CHECK_THROWS_WITH(Tokenizer::Read("/nonexistent/tokenizer.json"),
                    Catch::Contains("cannot be opened"));
  CHECK_THROWS_WITH(Tokenizer::Read("."), Catch::Contains("save_pretrained"));
}

TEST_CASE("a pattern that explodes is stopped", "[data][cpu]") {
  const auto read = [](const char* pattern) {
    Json json = TinyTokenizerJson();
    SetFirstStep(json, Split(pattern));
    return ReadTokenizerJson(json);
  };
  CHECK_THROWS_WITH(read("(?:a|aa)+bc|a").Encode(std::string(80, 'a') + "b", true),
                    Catch::Contains("gave up on a text of 81 characters"));
  // Each match is cheap, and all of them are not.
  const Tokenizer looks_ahead = read("a(?=.*b)|a");
  CHECK(looks_ahead.Encode(std::string(1000, 'a'), true).size() == 1000);
  CHECK_THROWS_WITH(looks_ahead.Encode(std::string(1'000'000, 'a'), true),
                    Catch::Contains("it would take too long"));
}

TEST_CASE("steps without number and texts that grow are refused", "[data][cpu]") {
  Json json = TinyTokenizerJson();
  json["pre_tokenizer"]["pretokenizers"] = Json::array();
  for (int i = 0; i < 50'000; ++i) json["pre_tokenizer"]["pretokenizers"].push_back(Split("x"));
  CHECK(ErrorOf(json.dump()).find("a sequence of 50000 steps; at most 32 are read") !=
        std::string::npos);
  json = TinyTokenizerJson();
  const Json nfkd = {{"type", "NFKD"}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<Json>(33, nfkd)}};
  CHECK(ErrorOf(json.dump()).find("at most 32") != std::string::npos);
  json["normalizer"]["normalizers"] = std::vector<Json>(32, nfkd);
  const Tokenizer tokenizer = ReadTokenizerJson(json);
  const std::string ligature = "\xEF\xB7\xBA";  // U+FDFA, 18 letters
  CHECK(tokenizer.Encode(ligature, true).size() == 33);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += ligature;
  CHECK_THROWS_WITH(tokenizer.Encode(text, true), Catch::Contains("normalizer: makes more than 4"));
}

TEST_CASE("a replacement that grows a text without bound is stopped", "[data][cpu]") {
  Json json = TinyTokenizerJson();
  json["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'b')}};
  const Tokenizer tokenizer = ReadTokenizerJson(json);
  CHECK(tokenizer.Encode("a", true).size() == 1000);
  CHECK_THROWS_WITH(tokenizer.Encode(std::string(100'000, 'a'), true),
                    Catch::Contains("normalizer: makes more than 4"));
}

TEST_CASE("a space stands before a text alone with prepend_scheme first", "[data][cpu]") {
  Json json = TinyTokenizerJson();
  SetFallback(json);
  json["model"]["vocab"]["\xE2\x96\x81"] = 290;
  const Tokenizer tokenizer = ReadTokenizerJson(json);
  CHECK(tokenizer.Encode("us", true) == Ids{290, 263});
  CHECK(tokenizer.Encode(" us", true) == Ids{290, 263});
  CHECK(tokenizer.Encode("us", true, /*first=*/false) == Ids{263});
  CHECK(tokenizer.Encode("us<|im_end|>us", true) == Ids{290, 263, 302, 263});
  CHECK(tokenizer.Encode("<|im_end|>us", true) == Ids{302, 263});
}

TEST_CASE("a sequence of normal forms is one form", "[data][cpu]") {
  const auto encode = [](std::vector<Json> names, const std::string& text) {
    Json json = TinyTokenizerJson();
    Json steps = Json::array();
    for (const Json& name : names) steps.push_back({{"type", name}});
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
    const Tokenizer tokenizer = ReadTokenizerJson(json);
    return tokenizer.Decode(tokenizer.Encode(text, true), false);
  };
  const std::string text = "\xC3\xA9\xEF\xAC\x81";  // e acute, the ligature fi
  CHECK(encode({}, text) == text);
  CHECK(encode({"NFD", "NFC"}, text) == text);
  CHECK(encode({"NFKD", "NFC"}, text) ==
        "\xC3\xA9"
        "fi");
  CHECK(encode({"NFKC", "NFD"}, text) ==
        "e\xCC\x81"
        "fi");
  CHECK(encode({"NFC", "NFKD"}, text) ==
        "e\xCC\x81"
        "fi");
}

}  // namespace
}  // namespace equipoise
