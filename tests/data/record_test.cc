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
      {"id is a list", With("\"id\":[]"), Defect::kBadField},
      {"id is a fraction", With("\"id\":1.5"), Defect::kBadField},
      {"video", With("\"video\":7"), Defect::kBadField},
      {"conversations is an object", R"({"conversations":{}})", Defect::kBadField},
      {"lists of different lengths", R"({"conversations":{"from":["human","gpt"],"value":["Q"]}})",
       Defect::kBadField},
      {"turn is text", R"({"conversations":["a","b"]})", Defect::kBadField},
      {"no value", R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","text":"A"}]})",
       Defect::kBadField},
      {"value is a number", R"({"conversations":[{"from":"human","value":1}]})", Defect::kBadField},
      {"unknown from", R"({"conversations":[{"from":"robot","value":"Q"}]})", Defect::kBadField},
      {"no turns", R"({"conversations":[]})", Defect::kNoConversation},
      {"a question alone", R"({"conversations":[{"from":"human","value":"Q"}]})",
       Defect::kNoConversation},
      {"a question behind a function's result",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"},)"
       R"({"from":"observation","value":"1"},{"from":"human","value":"Q"}]})",
       Defect::kNoConversation},
      {"an answer and then a question alone",
       R"({"conversations":[{"from":"gpt","value":"A"},{"from":"human","value":"Q"}]})",
       Defect::kNoConversation},
      {"a bad answer by LLaMA-Factory's tag", With(R"("kto_tag":false)"), Defect::kBadField},
      {"a part of a video", With(R"("video":"a.mp4","clip":[1,2])"), Defect::kBadField},
      {"<image> in an answer that stands first",
       R"({"images":["a.png"],"conversations":[{"from":"gpt","value":"<image>"},)"
       R"({"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})",
       Defect::kNoConversation},
      {"<image> in an answer, and nowhere else for a picture",
       R"({"images":["a.png"],"messages":[{"role":"user","content":"draw"},)"
       R"({"role":"assistant","content":"<image>"}]})",
       Defect::kPlaceholders},
      {"<image> in the system text alone",
       R"({"images":["a.png"],"system":"<image>","query":"Q","response":"A"})",
       Defect::kPlaceholders},
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

TEST_CASE("a pair's keys may have capitals, and fields that are not read any value",
          "[data][cpu]") {
  const ParsedRecord pair =
      ParseRecord(R"({"id":12.0,"Question":"Q","Response":"A","Image":"a.png","width":"640"})");
  CHECK(pair.reason.empty());
  REQUIRE(pair.record.turns.size() == 2);
  CHECK(pair.record.turns[0].text == "<image>\nQ");
  CHECK(pair.record.turns[1].text == "A");
  CHECK(pair.record.id == "12");
  CHECK(ParseRecord(R"({"Question":"Q","question":"R","Response":"A"})").record.turns[0].text ==
        "R");
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

TEST_CASE("a picture's Base64 alone is told from a path", "[data][cpu]") {
  const auto parsed = [](const std::string& picture) {
    return ParseRecord(R"({"images":[")" + picture + R"("],"query":"Q","response":"A"})");
  };
  const std::string bytes = "iVBORw0KGgo" + std::string(197, 'A');
  const ParsedRecord held = parsed(bytes);
  REQUIRE(held.record.held.size() == 1);
  CHECK(held.record.held[0].starts_with("\x89PNG"));
  for (const std::string& path : {bytes.substr(0, 100), bytes + ".png", "/9j/a.jpg" + bytes}) {
    INFO(path);
    CHECK(parsed(path).record.held.empty());
    CHECK(parsed(path).record.images == std::vector{path});
  }
}

TEST_CASE("pictures of each form are found", "[data][cpu]") {
  const std::string turns = R"("query":"<image><image>","response":"A"})";
  for (const std::string& text :
       {R"({"images":["a.png","b.png"],)" + turns,
        R"({"images":[{"path":"a.png"},{"path":"b.png","bytes":null}],)" + turns,
        std::string(R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":)"
                    R"({"url":"a.png"}},{"type":"image","image":"b.png"}]},)"
                    R"({"role":"assistant","content":"A"}]})"),
        std::string(
            R"({"images":["a.png","b.png"],"messages":[{"role":"user","content":)"
            R"([{"type":"image"},{"type":"image"}]},{"role":"assistant","content":"A"}]})")}) {
    INFO(text);
    const ParsedRecord parsed = ParseRecord(text);
    CHECK(parsed.reason.empty());
    CHECK(parsed.record.images == std::vector<std::string>{"a.png", "b.png"});
    CHECK(parsed.record.held.empty());
    REQUIRE_FALSE(parsed.record.turns.empty());
    CHECK(parsed.record.turns[0].text == "<image><image>");
  }
  // "foo" in Base64, as a data URL and as bytes, beside a path.
  const ParsedRecord mixed =
      ParseRecord(R"({"images":["a.png",{"bytes":"Zm9v"},"data:image/png;base64,Zm9v"],)"
                  R"("query":"<image><image><image>","response":"A"})");
  CHECK(mixed.reason.empty());
  CHECK(mixed.record.held == std::vector<std::string>{"", "foo", "foo"});
  CHECK(mixed.record.images[0] == "a.png");
  CHECK(mixed.record.images[1].find("picture 2 of the record (") == 0);
}

TEST_CASE("a question's <img>PATH</img> is a picture, as in Qwen-VL's records", "[data][cpu]") {
  const ParsedRecord parsed =
      ParseRecord(R"({"query":"<img>a/b.JPG</img><img> c d.png</img>\nQ","response":"A"})");
  CHECK(parsed.record.images == std::vector<std::string>{"a/b.JPG", " c d.png"});
  CHECK(parsed.record.turns[0].text == "<image><image>\nQ");
}

TEST_CASE("videos of each form are found", "[data][cpu]") {
  const std::string pair = R"("query":"<image><video><video>","response":"A"})";
  const ParsedRecord parsed = ParseRecord(
      R"({"videos":["clips/a",["0.png","1.png"]],"fps":[2,0.5],"image":"a.png",)" + pair);
  CHECK(parsed.reason.empty());
  CHECK(parsed.record.images == std::vector<std::string>{"a.png", "0.png", "1.png"});
  CHECK(parsed.record.pictures() == 1);
  REQUIRE(parsed.record.videos.size() == 2);
  CHECK(parsed.record.videos[0].path == "clips/a");
  CHECK(parsed.record.videos[0].fps == 2);
  CHECK(parsed.record.videos[1].first == 1);
  CHECK(parsed.record.videos[1].frames == 2);
  CHECK(parsed.record.videos[1].fps == 0.5);
  CHECK(parsed.record.turns[0].videos);

  const Record one = ParseRecord(R"({"video":{"path":"b","fps":3},"fps":2,"query":"<video>",)"
                                 R"("response":"A"})")
                         .record;
  REQUIRE(one.videos.size() == 1);
  CHECK(one.videos[0].path == "b");
  CHECK(one.videos[0].fps == 3);
  // LLaVA-NeXT's, of which each `<image>` is a video.
  const ParsedRecord next =
      ParseRecord(R"({"video":"a.mp4","conversations":[{"from":"human","value":"<image>\nWhat?"},)"
                  R"({"from":"gpt","value":"A <image>"}]})");
  CHECK(next.reason.empty());
  CHECK(next.record.turns[0].text == "<video>\nWhat?");
  CHECK(next.record.turns[1].text == "A <image>");
  CHECK(next.record.pictures() == 0);
  CHECK(ParseRecord(R"({"videos":["a.mp4","b.mp4"],"query":"<image> <image>?","response":"A"})")
            .record.turns[0]
            .text == "<video> <video>?");
  // Without a video its placeholder is text.
  CHECK_FALSE(ParseRecord(R"({"query":"<video>","response":"A"})").record.turns[0].videos);
}

TEST_CASE("descriptions of functions are lines of JSON in Qwen's form", "[data][cpu]") {
  const std::string pair = R"("query":"Q","response":"A"})";
  const std::string lines =
      "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"b\": 1, \"a\": [2]}}\n"
      "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}";
  CHECK(ParseRecord(R"({"tools":[{"type":"function","function":{"name":"f","b":1,"a":[2]}},)"
                    R"({"name":"g"}],)" +
                    pair)
            .record.tools == lines);
  // LLaMA-Factory and ms-swift keep them as text.
  CHECK(ParseRecord(R"({"tools":"[{\"name\":\"f\",\"b\":1,\"a\":[2]}, {\"name\":\"g\"}]",)" + pair)
            .record.tools == lines);
  CHECK(ParseRecord(R"({"tools":["{\"name\":\"f\",\"b\":1,\"a\":[2]}","{\"name\":\"g\"}"],)" + pair)
            .record.tools == lines);
  CHECK(ParseRecord(R"({"tools":"[]",)" + pair).record.tools.empty());
  CHECK(ParseRecord(R"({"tools":null,)" + pair).record.tools.empty());
}

TEST_CASE("what a form cannot say is one clear line", "[data][cpu]") {
  const std::string pair = R"("query":"Q","response":"A"})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"coco":{"root":"a","annotation":"b.jsonl"}})", "meta file of InternVL"},
      {R"({"question":"Q","caption":"A"})", "there is no conversation: none of"},
      {R"({"question":"Q","answer":"A","solution":"B"})", "both 'answer' and 'solution' are given"},
      {R"({"question":"Q","problem":"P","answer":"A"})", "both 'question' and 'problem' are given"},
      {R"({"question":"Q","answers":[1]})", "'answers' is no text"},
      {R"({"question":"Q","answer":7})", "'answer' is no text"},
      {R"({"tools":["{}"],)" + pair, "'tools' is no list of functions"},
      {R"({"tools":["{"],)" + pair, "'tools':1:2: syntax error"},
      {R"({"query":"<image>\n<img>a.png</img>","response":"A"})",
       "2 <image> in user turns for 1 pictures"},
      {R"({"messages":[],)" + pair, "both 'messages' and 'query' are given"},
      {R"({"tools":"[{}]",)" + pair, "'tools' is no list of functions"},
      {R"({"tools":[1],)" + pair, "'tools' is no list of functions"},
      {R"({"tools":"f x",)" + pair, "'tools':1:2: syntax error"},
      {R"({"videos":[7],)" + pair, "an item of 'videos': a video is a file, a folder of its"},
      {R"({"video":{"fps":1},)" + pair, "'video': a video is a file, a folder of its frames"},
      {R"({"videos":[["a.png"],["b.png"]],"query":"<video>","response":"A"})",
       "1 <video> in user turns for 2 videos; write one <video> for each"},
      {R"({"video":["a.png"],"videos":["b"],)" + pair,
       "a record has videos in its turns, a 'video'"},
      {R"({"video":"a","fps":0,)" + pair, "'fps' is no number above 0"},
      {R"({"videos":["a"],"fps":[1,2],)" + pair, "'fps' has 2 numbers for 1 videos"},
      {R"({"audio":["a.wav"],)" + pair, "'audio' is not supported"},
      {R"({"history":[["q"]],)" + pair, "'history' is no list of [question, answer]"},
      {R"({"history":"q",)" + pair, "'history' is no list of [question, answer]"},
      {R"({"system":"S","conversations":[{"from":"system","value":"T"}]})", "both 'system' and"},
      {R"({"instruction":1,"output":"A"})", "'instruction' is no text"},
      {R"({"images":["data:image/png;base64,Z"],)" + pair,
       "picture 1 of the record: is not Base64"},
      {R"({"images":["data:image/png,xx"],)" + pair, "a data URL without Base64"},
      {R"({"images":[{"bytes":""}],)" + pair, "has no bytes"},
      {R"({"images":[{"x":1}],)" + pair, "an item of 'images' is no picture"},
      {R"({"images":["b.png"],"messages":[{"role":"user","content":[{"type":"image",)"
       R"("image":"a.png"}]},{"role":"assistant","content":"A"}]})",
       "pictures are given in the turns and in 'images'"},
      {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":)"
       R"([{"type":"image","image":"a.png"}]}]})",
       "turn 2: a picture in a turn that is not the user's"},
      {R"({"messages":[{"role":"user","content":[{"type":"input_audio"}]}]})",
       "turn 1: a part of the content is neither text nor a picture nor a video"},
      {R"({"messages":[{"role":"user","content":null}]})", "turn 1: 'content' is no text"},
      {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A",)"
       R"("loss_scale":2}]})",
       "turn 2: 'loss_scale' is neither 0 nor 1"},
      {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A","loss":0},)"
       R"({"role":"tool_call","content":"{\"name\":\"f\"}"}]})",
       "turn 3: this turn and the assistant's before it become one; one of them is trained on"},
      {R"({"conversation":[{"human":"Q"}]})", "turn 1 has a question and no answer ('assistant')"},
      {R"({"question":"Q","texts":[]})", "name other keys by the source's `columns`"},
      {R"({"messages":[{"role":"user","content":[{"type":"video","video":"a.mp4","nframes":4}]}]})",
       "turn 1: 'nframes' of a video is not supported"},
      {R"({"images":["iVBORw0KGgo)" + std::string(5000, '*') + R"("],)" + pair,
       "picture 1 of the record: is not Base64"},
      {R"({"prompt":[{"role":"user","content":"Q"}],"completion":"A"})",
       "one of 'prompt' and 'completion' is a list of messages"},
      {R"({"messages":{"role":["user","tool"],"content":["Q",{"a":1}]}})",
       "turn 2: 'content' holds an object, in an object of lists"},
      {R"({"conversations":[{"from":"function_call","value":"f x"}]})", "turn 1:1:2: syntax error"},
      {R"({"conversations":[{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":3}"}]})",
       "turn 1: a function's call is"}};
  for (const auto& [text, words] : cases) {
    INFO(text);
    const ParsedRecord parsed = ParseRecord(text);
    INFO(parsed.reason);
    CHECK(parsed.defect != Defect::kNone);
    CHECK(parsed.reason.find(words) != std::string::npos);
    CHECK(parsed.reason.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace equipoise
