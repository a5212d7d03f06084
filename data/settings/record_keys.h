#pragma once

#include <optional>
#include <string>

#include "configs/yaml/fields.h"

namespace equipoise {

// The keys, or columns, of a source's records that hold what a record has, as in the `columns` of
// LLaMA-Factory's dataset_info.json. Empty: the records have none.
struct RecordColumns {
  std::string prompt = {};
  std::string query = {};
  std::string response = {};
  std::string history = {};
  std::string messages = {};
  std::string system = {};
  std::string tools = {};
  std::string images = {};
  std::string videos = {};

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("prompt", prompt, "question");
    visit("query", query, "text behind the question, on a line of its own");
    visit("response", response, "answer; with messages none of these three");
    visit("history", history, "list of [question, answer] before it");
    visit("messages", messages, "list of a conversation's turns");
    visit("system", system, "system text");
    visit("tools", tools, "descriptions of functions");
    visit("images", images, "picture or list of pictures");
    visit("videos", videos, "video or list of videos");
  }
};

// The keys of a turn and the words for who speaks, as in the `tags` of that file. Empty: those that
// docs/data.md lists.
struct RecordTags {
  std::string role_tag = {};
  std::string content_tag = {};
  std::string user_tag = {};
  std::string assistant_tag = {};
  std::string system_tag = {};
  std::string function_tag = {};
  std::string observation_tag = {};

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("role_tag", role_tag, "key of who speaks");
    visit("content_tag", content_tag, "key of the text");
    visit("user_tag", user_tag, "word for the user");
    visit("assistant_tag", assistant_tag, "word for the assistant");
    visit("system_tag", system_tag, "word for the system text");
    visit("function_tag", function_tag, "word for a function's call");
    visit("observation_tag", observation_tag, "word for a function's result");
  }
};

// Both; neither where records have the keys of data/records/record_forms.h themselves.
struct RecordKeys {
  std::optional<RecordColumns> columns = {};
  std::optional<RecordTags> tags = {};

  bool given() const { return columns || tags; }
};

}  // namespace equipoise
