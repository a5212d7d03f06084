// What ChatOptions change in a conversation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/text/chat_template.h"
#include "tests/data/tiny_tokenizer.h"

namespace equipoise {
namespace {

TEST_CASE("a question's picture stands before its text, as LLaVA's trainer places it",
          "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  const ChatTemplate as_written("chatml", "", &tokenizer);
  const ChatTemplate first("chatml", "", &tokenizer, -1, {.image_first = true});
  CHECK(first.fingerprint() != as_written.fingerprint());
  const auto ids = [](const ChatTemplate& chat, const std::string& text, size_t pictures) {
    return chat.Encode({{Role::kUser, text}}, std::vector<int64_t>(pictures, 2)).ids;
  };
  for (const char* text : {"hello\n<image>", "<image>hello", " <image>\nhello ", "he<image>llo"}) {
    INFO(text);
    CHECK(ids(first, text, 1) == ids(as_written, "<image>\nhello", 1));
  }
  for (const auto& [text, pictures] : {std::pair(" hello ", 0), {"a<image>b<image>", 2}}) {
    INFO(text);
    CHECK(ids(first, text, pictures) == ids(as_written, text, pictures));
  }
  CHECK(ids(first, "\n<image> ", 1) == ids(as_written, "<image>", 1));
  // Pictures and videos keep their order, and so do a video's frames.
  const Turn frames = {.role = Role::kUser, .text = "Frame-1: <image> a", .frames = true};
  CHECK(first.Encode({frames}, {2}).ids == as_written.Encode({frames}, {2}).ids);
  const Tokenizer with_videos = ReadTokenizerJson(TinyVideoTokenizerJson());
  const ChatTemplate video_as_written("chatml", "", &with_videos);
  const ChatTemplate video_first("chatml", "", &with_videos, -1, {.image_first = true});
  const Turn both = {.role = Role::kUser, .text = "<video> and <image>", .videos = true};
  CHECK(video_first.Encode({both}, {2, 3}).ids == video_as_written.Encode({both}, {2, 3}).ids);
  const std::vector<Turn> answer = {{Role::kUser, "<image>a"}, {Role::kAssistant, "us <image>"}};
  CHECK(first.Encode(answer, {2}).ids ==
        as_written.Encode({{Role::kUser, "<image>\na"}, answer[1]}, {2}).ids);
}

TEST_CASE("an answer that is not trained on has no thought before the last question",
          "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  const ChatTemplate qwen("qwen3", "", &tokenizer), plain("chatml", "", &tokenizer);
  const ChatTemplate last("qwen3", "", &tokenizer, -1, {.last_answer = true});
  CHECK(qwen.fingerprint() != plain.fingerprint());
  CHECK(qwen.takes_tools());
  const auto ids = [](const ChatTemplate& chat, const std::string& first, bool trained,
                      const std::string& second) {
    return chat
        .Encode({{Role::kUser, "a"},
                 {Role::kAssistant, first, trained},
                 {Role::kUser, "c"},
                 {Role::kAssistant, second}},
                {})
        .ids;
  };
  const std::string none = "<think>\n\n</think>\n\n", thought = "<think>\nhello\n</think>\n\n";
  CHECK(ids(qwen, "b", true, "d") == ids(plain, none + "b", true, none + "d"));
  CHECK(ids(qwen, thought + "b", true, "d") == ids(plain, thought + "b", true, none + "d"));
  CHECK(ids(qwen, thought + "b", false, "d") == ids(plain, "b", false, none + "d"));
  CHECK(ids(last, thought + "b", true, "d") == ids(plain, "b", true, none + "d"));
  CHECK(ids(last, "b", true, thought + "d") == ids(plain, "b", true, thought + "d"));
}

TEST_CASE("without thinking an empty thought is part of each prompt, and not trained on",
          "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  const ChatTemplate off("qwen3_no_thinking", "", &tokenizer), plain("chatml", "", &tokenizer);
  const ChatTemplate last("qwen3_no_thinking", "", &tokenizer, -1, {.last_answer = true});
  CHECK(off.fingerprint() != plain.fingerprint());
  CHECK(off.takes_tools());
  const std::string none = "<think>\n\n</think>\n\n", thought = "<think>\nhello\n</think>\n\n";
  const auto turns = [](const std::string& first, const std::string& second) {
    return std::vector<Turn>{{Role::kUser, "a"},
                             {Role::kAssistant, first},
                             {Role::kUser, "c"},
                             {Role::kAssistant, second}};
  };
  const EncodedConversation bare = plain.Encode(turns("b", "d"), {});
  for (const std::string& said : {std::string("b"), thought + "b", none + "b"}) {
    INFO(said);
    const EncodedConversation encoded = off.Encode(turns(said, "d"), {});
    CHECK(encoded.ids == plain.Encode(turns(none + "b", none + "d"), {}).ids);
    // What is trained are the same tokens as without any thoughts.
    const auto trained = [](const EncodedConversation& of) {
      std::vector<int32_t> ids;
      for (size_t i = 0; i < of.ids.size(); ++i)
        if (of.trained[i] != 0) ids.push_back(of.ids[i]);
      return ids;
    };
    CHECK(trained(encoded) == trained(bare));
    CHECK(last.Encode(turns(said, "d"), {}).ids == plain.Encode(turns("b", none + "d"), {}).ids);
    // The prompt for the second answer begins the conversation that trains it.
    std::vector<Turn> asked = turns(said, "d");
    asked.pop_back();
    const std::vector<int32_t> prompt = off.Encode(asked, {}, /*with_answer_prompt=*/true).ids;
    const std::vector<int32_t> whole = last.Encode(turns(said, "d"), {}).ids;
    REQUIRE(prompt.size() < whole.size());
    CHECK(std::equal(prompt.begin(), prompt.end(), whole.begin()));
  }
}

TEST_CASE("the last answer alone is trained on, where it is said", "[data][cpu]") {
  const Tokenizer tokenizer = ReadTokenizerJson(TinyTokenizerJson());
  const ChatTemplate all("chatml", "", &tokenizer);
  const ChatTemplate last("chatml", "", &tokenizer, -1, {.last_answer = true});
  CHECK(last.fingerprint() != all.fingerprint());
  std::vector<Turn> turns = {
      {Role::kUser, "a"}, {Role::kAssistant, "b"}, {Role::kUser, "c"}, {Role::kAssistant, "d"}};
  const EncodedConversation encoded = last.Encode(turns, {});
  turns[1].trained = false;
  CHECK(encoded.ids == all.Encode(turns, {}).ids);
  CHECK(encoded.trained == all.Encode(turns, {}).trained);
  turns[3].trained = false;  // in the record
  const std::vector<uint8_t> none = last.Encode(turns, {}).trained;
  CHECK(std::count(none.begin(), none.end(), 1) == 0);
}

}  // namespace
}  // namespace equipoise
