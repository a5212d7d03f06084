#include "data/records/known_keys.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/records/record.h"

namespace equipoise {
namespace {

std::vector<std::string> Shown(const Record& record) {
  std::vector<std::string> shown;
  for (const Turn& turn : record.turns) {
    const char role = turn.role == Role::kSystem ? 's' : turn.role == Role::kUser ? 'u' : 'a';
    shown.push_back(std::string(1, role) + (turn.trained ? " " : "- ") + turn.text);
  }
  return shown;
}

using Turns = std::vector<std::string>;

TEST_CASE("columns of a pair of question and answer", "[data][cpu]") {
  RecordKeys keys;
  keys.columns = RecordColumns{.prompt = "question",
                               .query = "context",
                               .response = "answer",
                               .history = "before",
                               .system = "who",
                               .images = "picture"};
  // 'query', 'response' and 'image' are keys of another form, which no column names.
  const ParsedRecord all = ParseRecord(
      R"({"id":"r1","question":"Q","context":"C","answer":"A","before":[["q","a"]],"who":"S",)"
      R"("picture":"a.png","query":"X","response":"Y","image":"b.png"})",
      keys);
  CHECK(all.reason.empty());
  CHECK(Shown(all.record) == Turns{"s S", "u <image>\nq", "a a", "u Q\nC", "a A"});
  CHECK(all.record.images == Turns{"a.png"});
  CHECK(all.record.id == "r1");

  const ParsedRecord boxed =
      ParseRecord(R"({"question":"<ref-object>?","answer":"A","objects":{"ref":["cat"]}})", keys);
  CHECK(boxed.record.objects.names == Turns{"cat"});

  const ParsedRecord least = ParseRecord(R"({"question":"Q","answer":"A","picture":null})", keys);
  CHECK(Shown(least.record) == Turns{"u Q", "a A"});

  keys.columns = RecordColumns{.response = "caption", .images = "image"};
  const ParsedRecord caption = ParseRecord(R"({"caption":"A cat.","image":"a.png"})", keys);
  CHECK(Shown(caption.record) == Turns{"u <image>\n", "a A cat."});
}

TEST_CASE("columns and tags of a conversation", "[data][cpu]") {
  RecordKeys keys;
  keys.columns = RecordColumns{
      .messages = "dialogue", .tools = "functions", .images = "pictures", .videos = "film"};
  keys.tags = RecordTags{.role_tag = "speaker",
                         .content_tag = "text",
                         .user_tag = "Q",
                         .assistant_tag = "A",
                         .system_tag = "S",
                         .function_tag = "F",
                         .observation_tag = "O"};
  const ParsedRecord all =
      ParseRecord(R"({"dialogue":[{"speaker":"S","text":"s"},{"speaker":"Q","text":"<image>q"},)"
                  R"({"speaker":"F","text":"{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":2}}"},)"
                  R"({"speaker":"O","text":"r"},{"speaker":"A","text":"x","loss":false},)"
                  R"({"speaker":"user","text":"q2"},{"speaker":"A","text":"a"}],)"
                  R"("functions":[{"name":"f","b":1,"a":2}],"pictures":["a.png"]})",
                  keys);
  CHECK(all.reason.empty());
  CHECK(Shown(all.record) ==
        Turns{"s s", "u <image>q",
              "a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}\n</tool_call>",
              "u <tool_response>\nr\n</tool_response>", "a- x", "u q2", "a a"});
  CHECK(all.record.tools == R"({"type": "function", "function": {"name": "f", "b": 1, "a": 2}})");
  CHECK(all.record.images == Turns{"a.png"});

  const ParsedRecord film =
      ParseRecord(R"({"dialogue":[{"speaker":"Q","text":"<video>q"},{"speaker":"A","text":"a"}],)"
                  R"("film":"a.mp4"})",
                  keys);
  CHECK(film.reason.empty());
  REQUIRE(film.record.videos.size() == 1);
  CHECK(film.record.videos[0].path == "a.mp4");

  // In Parquet turns may be an object of lists, with a null for what no turn has.
  const ParsedRecord lists =
      ParseRecord(R"({"dialogue":{"speaker":["Q","A"],"text":["q","a"],"loss":null}})", keys);
  CHECK(lists.reason.empty());
  CHECK(Shown(lists.record) == Turns{"u q", "a a"});
  const ParsedRecord of_system =
      ParseRecord(R"({"sys":"t","dialogue":{"role":["system","user","assistant"],)"
                  R"("content":["s","q","a"]}})",
                  {.columns = RecordColumns{.messages = "dialogue", .system = "sys"}});
  CHECK(of_system.reason.empty());
  CHECK(Shown(of_system.record) == Turns{"s s", "u q", "a a"});

  keys.columns->system = "sys";  // where the conversation has none of its own
  for (const auto& [first, text] :
       {std::pair(R"({"speaker":"S","text":"s"},)", "s s"), std::pair("", "s t")}) {
    const ParsedRecord given =
        ParseRecord(fmt::format(R"({{"sys":"t","dialogue":[{}{{"speaker":"Q","text":"q"}},)"
                                R"({{"speaker":"A","text":"a"}}]}})",
                                first),
                    keys);
    CHECK(given.reason.empty());
    CHECK(Shown(given.record) == Turns{text, "u q", "a a"});
  }
  keys.columns->system.clear();

  // A word or key that no tag names keeps its meaning; parts of OpenAI's form pass.
  keys.tags = RecordTags{.role_tag = "role", .content_tag = "content", .assistant_tag = "bot"};
  const ParsedRecord parts = ParseRecord(
      R"({"dialogue":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"q"}]},)"
      R"({"role":"bot","content":"a"}],"pictures":["a.png"]})",
      keys);
  CHECK(parts.reason.empty());
  CHECK(Shown(parts.record) == Turns{"u <image>q", "a a"});

  // Without columns the record's own keys count.
  keys.columns.reset();
  const ParsedRecord own =
      ParseRecord(R"({"conversations":[{"from":"human","value":"q"},{"from":"bot","value":"a"}]})",
                  {.columns = std::nullopt, .tags = RecordTags{.assistant_tag = "bot"}});
  CHECK(Shown(own.record) == Turns{"u q", "a a"});
  const ParsedRecord beside =
      ParseRecord(R"({"conversations":{"from":["human","bot"],"value":["q","a"]},"messages":null})",
                  {.columns = std::nullopt, .tags = RecordTags{.assistant_tag = "bot"}});
  CHECK(beside.reason.empty());
  CHECK(Shown(beside.record) == Turns{"u q", "a a"});
}

TEST_CASE("records without their source's columns are refused by the columns' names",
          "[data][cpu]") {
  RecordKeys pair, turns;
  pair.columns = RecordColumns{.prompt = "question", .response = "answer", .system = "who"};
  turns.columns = RecordColumns{.messages = "dialogue"};
  turns.tags = RecordTags{.role_tag = "speaker"};
  struct Bad {
    RecordKeys keys;
    std::string text, reason;
  };
  const std::vector<Bad> cases = {
      {pair, R"({"question":"Q"})", "'answer' is missing, the source's columns.response"},
      {pair, R"({"question":"Q","answer":null})",
       "'answer' is missing, the source's columns.response"},
      {pair, R"({"answer":"A"})", "'question' is missing, the source's columns.prompt"},
      {pair, R"({"question":1,"answer":"A"})",
       "'question' is no text, the source's columns.prompt"},
      {pair, R"({"question":"Q","answer":"A","who":[]})",
       "'who' is no text, the source's columns.system"},
      {turns, R"({"conversations":[]})", "'dialogue' is missing, the source's columns.messages"},
      {turns, R"({"dialogue":"x"})", "'dialogue' is no list, the source's columns.messages"},
      {turns, R"({"dialogue":{"speaker":["Q"],"content":["q","a"]}})",
       "'dialogue' is no list, the source's columns.messages"},
      {turns, R"({"dialogue":[1]})", "turn 1 is no object"},
      {turns, R"({"dialogue":[{"role":"user","content":"q"}]})",
       "turn 1 has no text 'speaker', which tells who speaks"},
      {turns, R"({"dialogue":[{"speaker":"someone","content":"q"}]})",
       "turn 1: 'role' is none of human, user, gpt, assistant, system, function_call, "
       "observation, tool"}};
  for (const Bad& bad : cases) {
    INFO(bad.text);
    const ParsedRecord parsed = ParseRecord(bad.text, bad.keys);
    CHECK(parsed.defect == Defect::kBadField);
    CHECK(parsed.reason == bad.reason);
  }
  CHECK(ParseRecord(R"({"question":"Q","question":"Q"})", pair).defect == Defect::kBadJson);
  CHECK(ParseRecord("[1]", pair).reason == "the record is no JSON object");
}

}  // namespace
}  // namespace equipoise
