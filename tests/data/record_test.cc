#include "data/records/record.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "tests/skip_case.h"

namespace equipoise {
namespace {

constexpr const char* kTurns =
    R"("conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}])";

std::string With(const std::string& fields) { return "{" + fields + "," + kTurns + "}"; }

struct Case {
  std::string name;
  std::string line;
  Defect defect;
};

std::vector<Case> BadLines() {
  const std::string deep(100'000, '[');
  return {
      {"empty object", "{}", Defect::kBadField},
      {"weight 2",
       R"({"conversations":[{"from":"human","value":"Q"},)"
       R"({"from":"gpt","value":"A","weight":2}]})",
       Defect::kBadField},
      {"weight 0 alone",
       R"({"conversations":[{"from":"human","value":"Q"},)"
       R"({"from":"gpt","value":"A","weight":0}]})",
       Defect::kNothingTrained},
      {"no JSON", "not json", Defect::kBadJson},
      {"cut in the middle", With("\"id\":\"a\"").substr(0, 40), Defect::kBadJson},
      {"trailing text", With("\"id\":\"a\"") + " x", Defect::kBadJson},
      {"two objects", With("\"id\":1") + With("\"id\":2"), Defect::kBadJson},
      {"an array", "[1]", Defect::kBadJson},
      {"a number", "5", Defect::kBadJson},
      {"NaN", With("\"width\":NaN"), Defect::kBadJson},
      {"a number beyond double", With("\"width\":1e400"), Defect::kBadJson},
      {"duplicate keys", With("\"id\":\"a\",\"id\":\"b\""), Defect::kBadJson},
      {"invalid UTF-8", With("\"id\":\"\xff\""), Defect::kBadJson},
      {"lone surrogate", With(R"("id":"\ud800")"), Defect::kBadJson},
      {"100,000 open brackets", "{\"a\":" + deep, Defect::kBadJson},
      {"image is a number", With("\"image\":5"), Defect::kBadField},
      {"image is an object", With("\"image\":{}"), Defect::kBadField},
      {"image list holds a number", With("\"image\":[\"a.png\",1]"), Defect::kBadField},
      {"image list holds an empty path", With("\"images\":[\"\"]"), Defect::kBadField},
      {"image and images", With("\"image\":\"a.png\",\"images\":[\"b.png\"]"), Defect::kBadField},
      {"width is text", With("\"width\":\"640\""), Defect::kBadField},
      {"id is a list", With("\"id\":[]"), Defect::kBadField},
      {"id is a fraction", With("\"id\":1.5"), Defect::kBadField},
      {"video", With("\"video\":\"a.mp4\""), Defect::kBadField},
      {"conversations is an object", R"({"conversations":{}})", Defect::kBadField},
      {"turn is text", R"({"conversations":["a","b"]})", Defect::kBadField},
      {"no value", R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","text":"A"}]})",
       Defect::kBadField},
      {"value is a number", R"({"conversations":[{"from":"human","value":1}]})", Defect::kBadField},
      {"unknown from", R"({"conversations":[{"from":"bot","value":"Q"}]})", Defect::kBadField},
      {"no turns", R"({"conversations":[]})", Defect::kNoConversation},
      {"a question alone", R"({"conversations":[{"from":"human","value":"Q"}]})",
       Defect::kNoConversation},
      {"two users in a row",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"user","value":"Q"},)"
       R"({"from":"gpt","value":"A"}]})",
       Defect::kNoConversation},
      {"an answer first",
       R"({"conversations":[{"from":"gpt","value":"A"},{"from":"human","value":"Q"}]})",
       Defect::kNoConversation},
      {"system in the middle",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"system","value":"S"},)"
       R"({"from":"gpt","value":"A"}]})",
       Defect::kNoConversation},
      {"empty answer",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":""}]})",
       Defect::kNothingTrained},
      {"answer of spaces",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":" \n\t"}]})",
       Defect::kNothingTrained},
      {"two pictures, no <image>", With(R"("image":["a.png","b.png"])"), Defect::kPlaceholders},
      {"<image> without a picture",
       R"({"conversations":[{"from":"human","value":"<image>Q"},{"from":"gpt","value":"A"}]})",
       Defect::kPlaceholders},
      {"more <image> than pictures",
       R"({"image":"a.png","conversations":[{"from":"human","value":"<image><image>"},)"
       R"({"from":"gpt","value":"A"}]})",
       Defect::kPlaceholders},
      {"<image> in the answer only",
       R"({"image":["a.png","b.png"],"conversations":[{"from":"human","value":"<image>"},)"
       R"({"from":"gpt","value":"<image>"}]})",
       Defect::kPlaceholders},
  };
}

TEST_CASE("each kind of bad record is refused for its own reason", "[data][cpu]") {
  for (const Case& bad : BadLines()) {
    INFO(bad.name);
    const ParsedRecord parsed = ParseRecord(bad.line);
    CHECK(DefectName(parsed.defect) == DefectName(bad.defect));
    CHECK_FALSE(parsed.reason.empty());
    CHECK(parsed.reason.find('\n') == std::string::npos);
  }
}

TEST_CASE("a defective record keeps its id where it can be read", "[data][cpu]") {
  CHECK(ParseRecord(R"({"id":"x7","conversations":[]})").record.id == "x7");
}

TEST_CASE("records with one picture, several and none are read", "[data][cpu]") {
  const auto one =
      ParseRecord(With(R"("id":7,"image":"a/b.png","width":640,"height":480.0,"extra":{"x":[1]})"));
  REQUIRE(one.defect == Defect::kNone);
  CHECK(one.record.id == "7");
  CHECK(one.record.images == std::vector<std::string>{"a/b.png"});

  const auto several =
      ParseRecord(R"({"images":["a.png","b.png"],"width_list":[1,2],)"
                  R"("conversations":[{"from":"system","value":"S"},)"
                  R"({"from":"user","value":"<image> and"},{"from":"assistant","value":"A"},)"
                  R"({"from":"human","value":"<image>"},{"from":"gpt","value":"B"}]})");
  REQUIRE(several.defect == Defect::kNone);
  CHECK(several.record.images.size() == 2);
  REQUIRE(several.record.turns.size() == 5);
  CHECK(several.record.turns[0].role == Role::kSystem);
  CHECK(several.record.turns[1].role == Role::kUser);
  CHECK(several.record.turns[4].role == Role::kAssistant);

  for (const char* none :
       {"\"id\":\"a\"", "\"image\":\"\"", "\"image\":[]", "\"images\":null", "\"width\":null"}) {
    INFO(none);
    const auto text = ParseRecord(With(none));
    CHECK(text.defect == Defect::kNone);
    CHECK(text.record.images.empty());
  }
}

TEST_CASE("a lone picture without a placeholder goes before the first user turn", "[data][cpu]") {
  const auto placed =
      ParseRecord(R"({"image":"a.png","conversations":[{"from":"system","value":"S"},)"
                  R"({"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})");
  REQUIRE(placed.defect == Defect::kNone);
  CHECK(placed.record.turns[0].text == "S");
  CHECK(placed.record.turns[1].text == "<image>\nQ");
  const auto kept =
      ParseRecord(R"({"image":"a.png","conversations":[{"from":"human","value":"Q"},)"
                  R"({"from":"gpt","value":"A"},)"
                  R"({"from":"human","value":"see <image>"},{"from":"gpt","value":"B"}]})");
  REQUIRE(kept.defect == Defect::kNone);
  CHECK(kept.record.turns[0].text == "Q");
}

TEST_CASE("every record of the real fixtures is read", "[data][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) {
    return testing::SkipCase("no fixtures");
  }
  std::ifstream file(std::string(fixtures) + "/real/train.jsonl");
  REQUIRE(file);
  int records = 0, pictures = 0;
  for (std::string line; std::getline(file, line); ++records) {
    const ParsedRecord parsed = ParseRecord(line);
    INFO(line);
    REQUIRE(parsed.reason.empty());
    pictures += parsed.record.images.empty() ? 0 : 1;
  }
  CHECK(records == 4927);
  CHECK(pictures == 762);
}

TEST_CASE("a turn of weight 0 is read and not learnt", "[data][cpu]") {
  const ParsedRecord parsed = ParseRecord(
      R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A","weight":0},)"
      R"({"from":"human","value":"Q"},{"from":"gpt","value":"B","loss":true}]})");
  REQUIRE(parsed.defect == Defect::kNone);
  CHECK_FALSE(parsed.record.turns[1].trained);
  CHECK(parsed.record.turns[3].trained);
}

TEST_CASE("records of other trainers are named with what to write", "[data][cpu]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"messages":[{"role":"user","content":"Q"}]})", "OpenAI's 'messages'; write"},
      {R"({"instruction":"Q","output":"A"})", "Alpaca's"},
      {R"({"query":"Q","response":"A"})", "ms-swift's"},
      {R"({"coco":{"root":"a","annotation":"b.jsonl"}})", "meta file of InternVL"},
      {R"({"conversations":[{"role":"user","content":"Q"}]})", "write 'from' for 'role'"}};
  for (const auto& [line, words] : cases) {
    INFO(line);
    const ParsedRecord parsed = ParseRecord(line);
    CHECK(parsed.defect == Defect::kBadField);
    CHECK(parsed.reason.find(words) != std::string::npos);
  }
}

}  // namespace
}  // namespace equipoise
