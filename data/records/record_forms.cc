#include "data/records/record_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "data/records/record_objects.h"
#include "data/records/record_pictures.h"
#include "data/records/record_turns.h"
#include "data/records/record_videos.h"
#include "data/records/refusal.h"
#include "data/records/tool_calls.h"

namespace equipoise {
namespace {

// The turns of forms with one question and its answer, behind those of "history".
void ReadPair(std::string question, const std::string& answer, const Json& object, Record& record) {
  const auto history = object.find("history");
  if (history != object.end() && !IsEmpty(*history)) {
    for (const Json& pair : *history) {
      if (!history->is_array() || !pair.is_array() || pair.size() != 2 || !pair[0].is_string() ||
          !pair[1].is_string())
        Refuse(Defect::kBadField, "'history' is no list of [question, answer]");
      record.turns.push_back({Role::kUser, pair[0]});
      record.turns.push_back({Role::kAssistant, pair[1]});
    }
  }
  record.turns.push_back({Role::kUser, std::move(question)});
  record.turns.push_back({Role::kAssistant, ThoughtOf(object, {}, "the record") + answer});
}

// TRL's prompt and its completion, texts or lists of messages; answers in the prompt are not
// trained on.
void ReadCompletion(const char*, const Json& object, std::string_view text, Record& record) {
  if (!object["prompt"].is_structured() && !object["completion"].is_structured()) {
    ReadPair(TextOf(object, "prompt", "the record"), TextOf(object, "completion", "the record"),
             object, record);
    return;
  }
  if (!object["prompt"].is_structured() || !object["completion"].is_structured()) {
    Refuse(Defect::kBadField, "one of 'prompt' and 'completion' is a list of messages");
  }
  ReadTurns("prompt", object, text, record);
  for (Turn& turn : record.turns) turn.trained = turn.role != Role::kAssistant;
  ReadTurns("completion", object, text, record);
}

// ms-swift's other names of a question and its answer, which may stand alone, or be the first of a
// list. False: there is no answer.
bool ReadOtherPair(const Json& object, Record& record) {
  const auto only = [&](std::initializer_list<const char*> keys) -> const char* {
    const char* found = nullptr;
    for (const char* key : keys) {
      const auto value = object.find(key);
      if (value == object.end() || value->is_null()) continue;
      if (found != nullptr) {
        Refuse(Defect::kBadField,
               fmt::format("both '{}' and '{}' are given; name the one that counts by the "
                           "source's `columns`",
                           found, key));
      }
      found = key;
    }
    return found;
  };
  const char* answer = only({"response", "answer", "output", "targets", "target", "answer_key",
                             "answers", "solution", "text", "completion", "content"});
  if (answer == nullptr) return false;
  const char* question = only({"query", "prompt", "input", "instruction", "question", "problem"});
  const Json& given = object[answer];
  const bool several = given.is_array() && !given.empty() && given[0].is_string();
  ReadPair(question == nullptr ? "" : TextOf(object, question, "the record"),
           several ? given[0].get<std::string>() : TextOf(object, answer, "the record"), object,
           record);
  return true;
}

struct RecordForm {
  std::array<const char*, 2> keys;  // those that show it
  bool common;                      // others count only in records of none of the common forms
  // `key`: the first of `keys`.
  void (*read)(const char* key, const Json& object, std::string_view text, Record& record);
};

constexpr std::array<RecordForm, 7> kForms = {{
    {{"conversations", nullptr}, true, ReadTurns},
    {{"messages", nullptr}, true, ReadTurns},
    {{"instruction", "output"},
     true,
     [](const char*, const Json& object, std::string_view, Record& record) {
       std::string question = TextOf(object, "instruction", "the record");
       const auto input = object.find("input");
       if (input != object.end() && !IsEmpty(*input)) {
         question += (question.empty() ? "" : "\n") + TextOf(object, "input", "the record");
       }
       ReadPair(std::move(question), TextOf(object, "output", "the record"), object, record);
     }},
    {{"query", "response"},
     true,
     [](const char*, const Json& object, std::string_view, Record& record) {
       ReadPair(TextOf(object, "query", "the record"), TextOf(object, "response", "the record"),
                object, record);
     }},
    {{"conversation", nullptr}, false, ReadTurns},
    {{"texts", nullptr}, false, ReadTurns},
    {{"prompt", "completion"}, false, ReadCompletion},
}};

// A list of turns under a key that is no other form's; of texts it is something else.
bool HoldsTurns(const Json& list) {
  return list.is_object() || (list.is_array() && !list.empty() && list[0].is_object());
}

bool IsIn(const RecordForm& form, const Json& object) {
  if (form.keys[1] != nullptr)
    return object.contains(form.keys[0]) && object.contains(form.keys[1]);
  const auto list = object.find(form.keys[0]);
  if (list == object.end() || list->is_null()) return false;  // in Parquet of mixed forms
  return form.common || HoldsTurns(*list);
}

// The form of a record, of the common ones or of the others; null where it has none.
const RecordForm* FormOf(const Json& object, bool common = true) {
  const RecordForm* found = nullptr;
  for (const RecordForm& form : kForms) {
    if (form.common != common || !IsIn(form, object)) continue;
    if (found != nullptr) {
      Refuse(Defect::kBadField,
             fmt::format("both '{}' and '{}' are given; leave one", found->keys[0], form.keys[0]));
    }
    found = &form;
  }
  return found == nullptr && common ? FormOf(object, false) : found;
}

[[noreturn]] void RefuseForm(const Json& object) {
  for (const Json& value : object) {
    if (value.is_object() && value.contains("annotation")) {
      Refuse(Defect::kBadField,
             "this is a meta file of InternVL, which stands in data.train itself");
    }
  }
  Refuse(Defect::kBadField,
         "there is no conversation: none of 'conversations', 'messages', 'instruction' with "
         "'output', 'query' with 'response', 'prompt' with 'completion', 'answer'; name other keys "
         "by the source's `columns`");
}

std::string ReadId(const Json& object) {
  const auto found = object.find("id");
  if (found == object.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number_integer()) return found->dump();
  // Tables write whole numbers as 12.0.
  const double number = found->is_number() ? found->get<double>() : 0.5;
  if (number == std::floor(number) && std::abs(number) < 0x1p53)
    return fmt::format("{:.0f}", number);
  Refuse(Defect::kBadField, "'id' is neither text nor a whole number");
}

// Refuses what would change the conversation and is not read.
void CheckOtherKeys(const Json& object) {
  for (const char* key : {"audio", "audios"}) {
    const auto found = object.find(key);
    if (found != object.end() && !IsEmpty(*found))
      Refuse(Defect::kBadField, fmt::format("'{}' is not supported", key));
  }
  if (object.value("kto_tag", Json()) == Json(false)) {
    Refuse(Defect::kBadField,
           "'kto_tag' is false: the answer is a bad one (KTO), which is not trained on; leave such "
           "records out");
  }
  if (const auto clip = object.find("clip"); clip != object.end() && !IsEmpty(*clip))
    Refuse(Defect::kBadField, "'clip' of a video is not supported; give its frames");
}

// Descriptions of functions, a list or its text; the keys' order counts, so they are read again.
void ReadTools(const Json& object, std::string_view text, Record& record) {
  const auto tools = object.find("tools");
  if (tools == object.end() || IsEmpty(*tools) || *tools == "[]") return;
  record.tools =
      ToolsLines(tools->is_string() ? tools->get_ref<const std::string&>()
                                    : nlohmann::ordered_json::parse(text)["tools"].dump());
}

void AddSystem(const Json& object, Record& record) {
  for (const char* key : {"system", "system_prompt"}) {
    const auto found = object.find(key);
    if (found == object.end() || IsEmpty(*found)) continue;
    const std::string& text = TextOf(object, key, "the record");
    if (!record.turns.empty() && record.turns[0].role == Role::kSystem) {
      if (record.turns[0].text == text) continue;
      Refuse(Defect::kBadField,
             fmt::format("both '{}' and another system text are given; leave one", key));
    }
    record.turns.insert(record.turns.begin(), {Role::kSystem, text});
  }
}

// Adds the values of keys with capitals under the same keys in small letters, where those are not
// given: ms-swift reads keys whatever letters they have.
void AddSmallKeys(Json& object) {
  std::vector<std::pair<std::string, Json>> small;
  for (const auto& [key, value] : object.items()) {
    std::string letters = key;
    for (char& c : letters) c = 'A' <= c && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
    if (letters != key && !object.contains(letters)) small.emplace_back(letters, value);
  }
  for (auto& [key, value] : small) object.emplace(key, std::move(value));
}

}  // namespace

bool HasConversation(std::string_view text) {
  const Json object = ParseJson(text, "record");
  return object.is_object() && FormOf(object) != nullptr;
}

void ReadConversation(std::string_view text, Record& record) {
  Json object = ParseJson(text, "record");
  if (!object.is_object()) Refuse(Defect::kBadJson, "the record is no JSON object");
  record.id = ReadId(object);
  const RecordForm* form = FormOf(object);
  if (form == nullptr) AddSmallKeys(object);
  if (form != nullptr) {
    form->read(form->keys[0], object, text, record);
  } else if (!ReadOtherPair(object, record)) {
    RefuseForm(object);
  }
  AddSystem(object, record);
  const bool drop = form != nullptr && std::string_view(form->keys[0]) == "conversations";
  BeginWithQuestion(drop, record);
  CheckOtherKeys(object);
  const size_t before = record.pictures();
  ReadPictures(object, record);
  if (before > 0 && record.pictures() > before) {
    Refuse(Defect::kBadField, "pictures are given in the turns and in 'images'; leave one");
  }
  ReadVideos(object, record);
  TakePathsInText(record);
  ReadObjects(object, record);
  ReadTools(object, text, record);
}

}  // namespace equipoise
