#include "data/records/record_forms.h"

#include <catch2/catch.hpp>

#include "data/records/record.h"

namespace equipoise {
namespace {

struct Form {
  std::string name, text;
  std::vector<std::string> turns;  // role's first letter, then the text; "-" before one not learnt
};

std::vector<std::string> Shown(const std::vector<Turn>& turns) {
  std::vector<std::string> shown;
  for (const Turn& turn : turns) {
    const char* letter = turn.role == Role::kSystem ? "s " : turn.role == Role::kUser ? "u " : "a ";
    shown.push_back((turn.trained ? "" : "-") + std::string(letter) + turn.text);
  }
  return shown;
}

std::vector<Form> Forms() {
  return {
      {"ShareGPT",
       R"({"system":"S","conversations":[{"from":"human","value":"Q"},)"
       R"({"from":"gpt","value":"A"}]})",
       {"s S", "u Q", "a A"}},
      {"roles in conversations",
       R"({"conversations":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})",
       {"u Q", "a A"}},
      {"OpenAI",
       R"({"messages":[{"role":"developer","content":"S"},{"role":"user","content":"Q"},)"
       R"({"role":"assistant","content":"A","weight":0},{"role":"user","content":"R"},)"
       R"({"role":"assistant","content":[{"type":"text","text":"B"},)"
       R"({"type":"text","text":"C"}]}]})",
       {"s S", "u Q", "-a A", "u R", "a BC"}},
      {"Alpaca",
       R"({"instruction":"I","input":"Q","output":"A","system":"S","history":[["q","a"]]})",
       {"s S", "u q", "a a", "u I\nQ", "a A"}},
      {"Alpaca without input", R"({"instruction":"I","input":"","output":"A"})", {"u I", "a A"}},
      {"ms-swift", R"({"query":"Q","response":"A","history":[]})", {"u Q", "a A"}},
      {"boxes stay text",
       R"({"query":"<ref>cat</ref>","response":"<box>[[1, 2, 3, 4]]</box>"})",
       {"u <ref>cat</ref>", "a <box>[[1, 2, 3, 4]]</box>"}},
      {"two pictures and no place for them",
       R"({"images":["a.png","b.png"],"query":"Q","response":"A"})",
       {"u <image>\n<image>\nQ", "a A"}},
      {"two turns of one speaker in a row, as ms-swift joins them",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"user","value":" and R"},)"
       R"({"from":"gpt","value":"A"},{"from":"bot","value":"B"}]})",
       {"u Q and R", "a AB"}},
      {"an answer alone, as ms-swift's pretraining has it",
       R"({"messages":[{"role":"assistant","content":"A"}]})",
       {"u ", "a A"}},
      {"an answer alone behind a system text",
       R"({"system":"S","messages":[{"role":"assistant","content":"A"}]})",
       {"s S", "u ", "a A"}},
      {"answers before the first question, which FastChat leaves out",
       R"({"conversations":[{"from":"gpt","value":"A"},{"from":"human","value":"Q"},)"
       R"({"from":"gpt","value":"B"}]})",
       {"u Q", "a B"}},
      {"answers before the first question, which ms-swift trains on",
       R"({"messages":[{"role":"assistant","content":"A"},{"role":"user","content":"Q"},)"
       R"({"role":"assistant","content":"B"}],"conversations":null})",
       {"u ", "a A", "u Q", "a B"}},
      {"a thought beside an answer",
       R"({"messages":[{"role":"user","content":"Q"},)"
       R"({"role":"assistant","reasoning_content":"\nT\n","content":"A"}]})",
       {"u Q", "a <think>\nT\n</think>\n\nA"}},
      {"thoughts under other names, and before calls",
       R"({"messages":[{"role":"user","content":"Q"},)"
       R"({"role":"assistant","thinking":"T","content":"A"},{"role":"user","content":"R"},)"
       R"({"role":"assistant","thinking":null,"reasoning":"U","content":"B"}]})",
       {"u Q", "a <think>\nT\n</think>\n\nA", "u R", "a <think>\nU\n</think>\n\nB"}},
      {"a thought beside a call",
       R"({"messages":[{"role":"user","content":"Q"},{"role":"tool_call",)"
       R"("reasoning_content":"T","content":"{\"name\": \"f\", \"arguments\": {}}"}]})",
       {"u Q",
        "a <think>\nT\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
        "{}}\n</tool_call>"}},
      {"a thought beside a response",
       R"({"query":"Q","response":"A","reasoning_content":"T"})",
       {"u Q", "a <think>\nT\n</think>\n\nA"}},
      {"turns and pairs with every key, as Parquet of mixed forms has them",
       R"({"conversations":[{"from":null,"role":"user","content":"Q","human":null},)"
       R"({"from":"gpt","value":"A","role":null,"human":null},)"
       R"({"from":null,"role":null,"human":"R","assistant":"B","gpt":null},)"
       R"({"human":null,"assistant":"C"}]})",
       {"u Q", "a A", "u R", "a B", "u ", "a C"}},
      {"a value of parts",
       R"({"conversations":[{"from":"human","value":[{"type":"text","text":"Q"}]},)"
       R"({"from":"gpt","value":"A"}]})",
       {"u Q", "a A"}},
      {"XTuner's pairs",
       R"({"conversation":[{"system":"S","input":"Q","output":"A"},{"input":"R","output":"B"}]})",
       {"s S", "u Q", "a A", "u R", "a B"}},
      {"ms-swift's pairs",
       R"({"system":"S","conversation":[{"human":"Q","assistant":"A"},)"
       R"({"human":"R","assistant":"B","loss":0}]})",
       {"s S", "u Q", "a A", "u R", "-a B"}},
      {"the_cauldron's pairs",
       R"({"images":[{"path":"a.png","bytes":null},{"path":"b.png","bytes":null}],)"
       R"("texts":[{"user":"Q","assistant":"A","source":"s"},{"user":"R","assistant":"B"}]})",
       {"u <image>\n<image>\nQ", "a A", "u R", "a B"}},
      {"pairs as an object of lists, beside a common form's key",
       R"({"conversations":{"user":["Q"],"assistant":["A"]},"texts":"other"})",
       {"u Q", "a A"}},
      {"TRL's prompt and completion", R"({"prompt":"Q","completion":"A"})", {"u Q", "a A"}},
      {"TRL's lists of messages: the completion alone is trained on",
       R"({"prompt":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},)"
       R"({"role":"user","content":"R"}],"completion":[{"role":"assistant","content":"B"}]})",
       {"u Q", "-a A", "u R", "a B"}},
      {"TRL's lists as objects of lists",
       R"({"prompt":{"role":["user"],"content":["Q"]},)"
       R"("completion":{"role":["assistant"],"content":["A"]}})",
       {"u Q", "a A"}},
      {"a prompt beside messages, as the Hub has it",
       R"({"prompt":"P","completion":"C","messages":[{"role":"user","content":"Q"},)"
       R"({"role":"assistant","content":"A"}],"label":true})",
       {"u Q", "a A"}},
      // What LLaMA-Factory's and Qwen's templates make of functions.
      {"a thought before a call",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"function_call",)"
       R"("value":"<think>\nT\n</think>\n\n{\"name\":\"f\",\"arguments\":{}}"}]})",
       {"u Q",
        "a <think>\nT\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n"
        "</tool_call>"}},
      {"a call that is written out",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"function-call",)"
       R"("value":"<think>T</think> <tool_call>\n{}\n</tool_call>"}]})",
       {"u Q", "a <think>T</think> <tool_call>\n{}\n</tool_call>"}},
      {"calls and results that are objects",
       R"({"messages":[{"role":"user","content":"Q"},)"
       R"({"role":"tool_call","content":{"name":"f","arguments":{"z":1,"a":2}}},)"
       R"({"role":"tool_response","content":{"z":[1],"a":"é"}},)"
       R"({"role":"tool_response","content":[{"type":"web","a":2}]},)"
       R"({"role":"tool_response","content":42},)"
       R"({"role":"assistant","content":"A"}]})",
       {"u Q",
        "a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": 2}}\n</tool_call>",
        "u <tool_response>\n{\"z\": [1], \"a\": \"é\"}\n</tool_response>\n"
        "<tool_response>\n[{\"type\": \"web\", \"a\": 2}]\n</tool_response>\n"
        "<tool_response>\n42\n</tool_response>",
        "a A"}},
      {"functions in ShareGPT's form",
       R"({"conversations":[{"from":"human","value":"Q"},{"from":"function_call",)"
       R"("value":"{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [\"x\",2.5]}}"},)"
       R"({"from":"observation","value":"{\"r\":1}"},{"from":"gpt","value":"A"}]})",
       {"u Q",
        "a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [\"x\", 2.5]}}\n"
        "</tool_call>",
        "u <tool_response>\n{\"r\":1}\n</tool_response>", "a A"}},
      {"functions in OpenAI's form",
       R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"T",)"
       R"("tool_calls":[{"type":"function",)"
       R"("function":{"name":"f","arguments":"{\"z\":0,\"y\":{}}"}},)"
       R"({"function":{"name":"é","arguments":)"
       R"({"z":null,"a":true}}}]},{"role":"tool","content":"1"},)"
       R"({"role":"tool","content":"2"},{"role":"assistant","content":"A"}]})",
       {"u Q",
        "a T\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"z\": 0, \"y\": {}}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"é\", \"arguments\": {\"z\": null, \"a\": true}}\n</tool_call>",
        "u <tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>", "a A"}},
      {"an object of lists, as the datasets library stores a list of objects",
       R"({"conversations":{"from":["human","gpt"],"value":["Q","A"]}})",
       {"u Q", "a A"}},
      {"an object of lists, one of them null",
       R"({"conversations":{"from":["human","gpt"],"value":["Q","A"],"weight":null}})",
       {"u Q", "a A"}},
      {"a video without a place",
       R"({"videos":[["0.png"]],"query":"Q","response":"A"})",
       {"u <video>\nQ", "a A"}},
      {"videos in parts",
       R"({"messages":[{"role":"user","content":[{"type":"video","video":"clips/a"},)"
       R"({"type":"text","text":"Q"}]},{"role":"assistant","content":"A"}]})",
       {"u <video>Q", "a A"}},
      {"ms-swift's calls behind each other, and behind what was said first",
       R"({"system_prompt":"S","messages":[{"role":"user","content":"Q"},)"
       R"({"role":"assistant","content":"T"},{"role":"tool_call","content":"{\"name\":\"f\"}"},)"
       R"({"role":"tool_call","content":"{\"name\":\"g\"}"},)"
       R"({"role":"tool_response","content":"1"},{"role":"tool_response","content":"2"},)"
       R"({"role":"assistant","content":"A"}]})",
       {"s S", "u Q",
        "a T\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
        "u <tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>", "a A"}},
      {"ms-swift's scale of a turn's loss",
       R"({"messages":[{"role":"user","content":"Q"},)"
       R"({"role":"assistant","content":"A","loss_scale":0.0},{"role":"user","content":"R"},)"
       R"({"role":"assistant","content":"B","loss_scale":1.0}]})",
       {"u Q", "-a A", "u R", "a B"}},
      {"parts with every field, as Parquet has them",
       R"({"images":[{"bytes":null,"path":"a.png"}],"messages":[{"role":"user","content":)"
       R"([{"index":null,"text":"Q","type":"text"},{"index":0,"text":null,"type":"image"}]},)"
       R"({"role":"assistant","content":[{"index":null,"text":"A","type":"text"}]}]})",
       {"u Q<image>", "a A"}},
      {"a part's picture as an object",
       R"({"messages":[{"role":"user","content":[{"type":"image","image":{"bytes":"Zm9v",)"
       R"("path":null},"text":null},{"type":"text","text":"Q"}]},)"
       R"({"role":"assistant","content":"A"}]})",
       {"u <image>Q", "a A"}},
      {"ms-swift's other names of a question and its answer",
       R"({"question":"Q","answer":"A","system":"S"})",
       {"s S", "u Q", "a A"}},
      {"a problem and its solution, in Parquet of mixed forms",
       R"({"problem":"Q","solution":"A","answer":null,"messages":null})",
       {"u Q", "a A"}},
      {"the first of several answers, to a picture",
       R"({"question":"Q","answers":["A","B"],"image":"a.png"})",
       {"u <image>\nQ", "a A"}},
      {"a text that describes a picture",
       R"({"image":"a.png","text":"A"})",
       {"u <image>\n", "a A"}},
      {"an answer alone", R"({"response":"A"})", {"u ", "a A"}},
      {"Qwen-VL's pictures in the text",
       R"({"conversations":[{"from":"user","value":"Picture 1: <img>a/b.JPG</img>\nQ"},)"
       R"({"from":"assistant","value":"A <img>c.png</img>"}]})",
       {"u Picture 1: <image>\nQ", "a A <img>c.png</img>"}},
      {"no picture between its marks, or others in the record",
       R"({"query":"<img>x</img> a.png</img><img>.png</img>","response":"A"})",
       {"u <img>x</img> a.png</img><img>.png</img>", "a A"}},
      {"marks beside the record's own picture",
       R"({"query":"<image><img>a.png</img>","response":"A","image":"b.png"})",
       {"u <image><img>a.png</img>", "a A"}},
      {"keys of both kinds in a turn",
       R"({"messages":[{"role":"user","value":"Q"},{"role":"assistant","value":"A"}]})",
       {"u Q", "a A"}},
      {"parts without a type",
       R"({"messages":[{"role":"user","content":[{"image":"a.png"},{"text":"Q"}]},)"
       R"({"role":"assistant","content":[{"text":"A"}]}]})",
       {"u <image>Q", "a A"}},
      {"a function's result with the keys of parts",
       R"({"messages":[{"role":"user","content":"Q"},{"role":"tool_call","content":)"
       R"({"name":"f","arguments":{"a":1e15,"b":-2.5e15,"c":1e16,"d":1e-5}}},)"
       R"({"role":"tool","content":[{"text":"T"}]},{"role":"assistant","content":"A"}]})",
       {"u Q",
        "a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1000000000000000.0, \"b\": "
        "-2500000000000000.0, \"c\": 1e+16, \"d\": 1e-05}}\n</tool_call>",
        "u <tool_response>\n[{\"text\": \"T\"}]\n</tool_response>", "a A"}},
      {"a function's result in ms-swift's pairs",
       R"({"conversation":[{"human":"Q","assistant":"<tool_call>"},{"tool":"1","assistant":"A"}]})",
       {"u Q", "a <tool_call>", "u <tool_response>\n1\n</tool_response>", "a A"}},
      {"no content with a call",
       R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":null,)"
       R"("tool_calls":[{"function":{"name":"f"}}]}]})",
       {"u Q", "a <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"}},
  };
}

TEST_CASE("records of each form become the same kind of conversation", "[data][cpu]") {
  for (const Form& form : Forms()) {
    INFO(form.name);
    const ParsedRecord parsed = ParseRecord(form.text);
    CHECK(parsed.reason.empty());
    CHECK(Shown(parsed.record.turns) == form.turns);
  }
}

TEST_CASE("a list of texts under a form's key is no conversation", "[data][cpu]") {
  CHECK_FALSE(HasConversation(R"({"texts":["a cat","a dog"],"conversation":"none","prompt":"P"})"));
  CHECK_FALSE(HasConversation(R"({"question":"Q","answer":"A"})"));
  CHECK(HasConversation(R"({"texts":[{"user":"Q","assistant":"A"}]})"));
  CHECK(HasConversation(R"({"conversation":{"human":["Q"],"assistant":["A"]}})"));
  const ParsedRecord parsed =
      ParseRecord(R"({"texts":["a cat"],"conversation":[{"human":"Q","assistant":"A"}]})");
  CHECK(Shown(parsed.record.turns) == std::vector<std::string>{"u Q", "a A"});
}

TEST_CASE("thoughts and pictures without number cost no more than their text", "[data][cpu]") {
  std::string thoughts, pictures;
  for (int i = 0; i < 200'000; ++i) {
    thoughts += "<think></think>";
    pictures += R"("a",)";
  }
  const ParsedRecord call =
      ParseRecord(R"({"messages":[{"role":"user","content":"Q"},{"role":"tool_call","content":")" +
                  thoughts + R"("}]})");
  CHECK(call.reason.find("syntax error") != std::string::npos);
  const ParsedRecord shown =
      ParseRecord(R"({"images":[)" + pictures + R"("b"],"query":"Q","response":"A"})");
  CHECK(shown.record.turns[0].text.size() == 200'001 * 8 + 1);
}

}  // namespace
}  // namespace equipoise
