#include "data/records/record_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "data/records/record_objects.h"
#include "data/records/record_pictures.h"
#include "data/records/record_videos.h"
#include "data/records/refusal.h"
#include "data/records/tool_calls.h"

namespace equipoise {
namespace {

enum class Speaker { kSystem, kUser, kAssistant, kCall, kResult };

// The words of all forms for who speaks.
std::optional<Speaker> SpeakerOf(std::string_view word) {
  using Word = std::pair<std::string_view, Speaker>;
  static constexpr std::array<Word, 14> kWords = {{{"human", Speaker::kUser},
                                                   {"user", Speaker::kUser},
                                                   {"gpt", Speaker::kAssistant},
                                                   {"assistant", Speaker::kAssistant},
                                                   {"system", Speaker::kSystem},
                                                   {"developer", Speaker::kSystem},
                                                   {"function_call", Speaker::kCall},
                                                   {"tool_call", Speaker::kCall},
                                                   {"observation", Speaker::kResult},
                                                   {"tool", Speaker::kResult},
                                                   {"function", Speaker::kResult},
                                                   {"function_response", Speaker::kResult},
                                                   {"tool_response", Speaker::kResult},
                                                   {"tool_result", Speaker::kResult}}};
  for (const auto& [known, speaker] : kWords) {
    if (known == word) return speaker;
  }
  return std::nullopt;
}

// `weight` (0 or 1) of LLaMA-Factory and OpenAI's form, `loss` and `loss_scale` of ms-swift.
bool IsTrained(const Json& turn, const std::string& where) {
  for (const char* key : {"weight", "loss", "loss_scale"}) {
    const auto found = turn.find(key);
    if (found == turn.end() || found->is_null()) continue;
    if (*found == Json(0) || *found == Json(false)) return false;
    if (*found != Json(1) && *found != Json(true)) {
      Refuse(Defect::kBadField, fmt::format("{}: '{}' is neither 0 nor 1", where, key));
    }
  }
  return true;
}

const std::string& TextOf(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) {
    Refuse(Defect::kBadField, fmt::format("{} has no '{}'", where, key));
  }
  if (!found->is_string()) {
    Refuse(Defect::kBadField, fmt::format("{}: '{}' is no text", where, key));
  }
  return found->get_ref<const std::string&>();
}

// Whether a part holds what it shows. With its type alone it stands for the next of the record's
// pictures or videos; in Parquet every part has all fields, those of others null.
bool HoldsOwn(const Json& part, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) {
    const auto found = part.find(key);
    return found != part.end() && !IsEmpty(*found);
  });
}

// The text of a list of parts; pictures leave `<image>` in their place, videos `<video>`, and go to
// `record`.
std::string JoinParts(const Json& parts, const std::string& where, Record& record) {
  std::string text;
  for (const Json& part : parts) {
    const std::string type = part.is_object() ? part.value("type", Json("")).dump() : "";
    if (type == "\"text\"") {
      text += TextOf(part, "text", where);
    } else if (type == "\"image\"" || type == "\"image_url\"") {
      if (HoldsOwn(part, {"image_url"})) {
        AddPicture(part["image_url"], where + ": a part", record);
      } else if (HoldsOwn(part, {"bytes", "path", "url", "image"})) {
        AddPicture(part, where + ": a part", record);
      }
      text += "<image>";
    } else if (type == "\"video\"") {
      if (HoldsOwn(part, {"video", "frames", "path", "url", "bytes"}))
        AddVideo(part, where + ": a part", 0, record);
      text += "<video>";
    } else {
      Refuse(Defect::kBadField,
             where + ": a part of the content is neither text nor a picture nor a video");
    }
  }
  return text;
}

// Reader of a list of turns, one behind the other.
class TurnReader {
 public:
  // `text` of the whole record: where functions are called with objects, whose keys' order counts,
  // the list of that key is read again; null: they cannot be.
  TurnReader(const char* list, std::string_view text, Record& record)
      : list_(list), text_(text), record_(record) {}

  void Read(const Json& turn) {
    const std::string where = fmt::format("turn {}", ++number_);
    if (!turn.is_object()) Refuse(Defect::kBadField, where + " is no object");
    const bool messages = turn.contains("role") && !turn.contains("from");
    const char *who = messages ? "role" : "from", *what = messages ? "content" : "value";
    const auto speaker = SpeakerOf(TextOf(turn, who, where));
    if (!speaker) {
      Refuse(Defect::kBadField,
             fmt::format("{}: '{}' is none of human, user, gpt, assistant, system, function_call, "
                         "observation, tool",
                         where, who));
    }
    Add(*speaker, Content(turn, what, where), IsTrained(turn, where), where);
  }

 private:
  std::string Content(const Json& turn, const char* key, const std::string& where) {
    const auto found = turn.find(key);
    const std::string calls = CallsOf(turn, where);
    std::string content;
    if (found != turn.end() && found->is_array()) {
      const size_t shown = record_.images.size() + record_.videos.size();
      content = JoinParts(*found, where, record_);
      const auto speaker = SpeakerOf(TextOf(turn, "role", where));
      if (record_.images.size() + record_.videos.size() > shown && speaker != Speaker::kUser &&
          speaker != Speaker::kResult)
        Refuse(Defect::kPlaceholders, where + ": a picture in a turn that is not the user's");
    } else if (calls.empty() || (found != turn.end() && !found->is_null())) {
      content = TextOf(turn, key, where);
    }
    if (calls.empty()) return content;
    return content.empty() ? calls : content + "\n" + calls;
  }

  // The calls of a message of OpenAI's form; empty where it makes none.
  std::string CallsOf(const Json& turn, const std::string& where) {
    for (const char* key : {"tool_calls", "function_call"}) {
      const auto found = turn.find(key);
      if (found == turn.end() || IsEmpty(*found)) continue;
      if (list_ == nullptr)
        Refuse(Defect::kBadField, where + ": functions' calls in an object of lists");
      if (!ordered_) ordered_ = nlohmann::ordered_json::parse(text_);
      return CallsText((*ordered_)[list_][number_ - 1][key].dump(), where);
    }
    return "";
  }

  void Add(Speaker speaker, std::string content, bool trained, const std::string& where) {
    std::vector<Turn>& turns = record_.turns;
    const bool after_result = after_result_;
    after_result_ = speaker == Speaker::kResult;
    switch (speaker) {
      case Speaker::kSystem:
        turns.push_back({Role::kSystem, std::move(content)});
        return;
      case Speaker::kUser:
        turns.push_back({Role::kUser, std::move(content)});
        return;
      case Speaker::kAssistant:
        turns.push_back({Role::kAssistant, std::move(content), trained});
        return;
      case Speaker::kCall:
        AddCall(CallsText(content, where), trained, where);
        return;
      case Speaker::kResult:
        // Results of several calls share one turn.
        if (after_result) {
          turns.back().text += "\n" + ResultText(content);
        } else {
          turns.push_back({Role::kUser, ResultText(content)});
        }
    }
  }

  // Calls behind each other, or behind what the assistant said first (ms-swift), are one turn.
  void AddCall(std::string call, bool trained, const std::string& where) {
    std::vector<Turn>& turns = record_.turns;
    if (turns.empty() || turns.back().role != Role::kAssistant) {
      turns.push_back({Role::kAssistant, std::move(call), trained});
      return;
    }
    if (turns.back().trained != trained) {
      Refuse(Defect::kBadField,
             where + ": one of an answer and its call is trained on, and the other is not");
    }
    turns.back().text += "\n" + call;
  }

  const char* list_;
  std::string_view text_;
  Record& record_;
  size_t number_ = 0;
  bool after_result_ = false;
  std::optional<nlohmann::ordered_json> ordered_;
};

// A list of objects that is stored as an object of lists, as the datasets library does in Parquet;
// null where it is none.
Json Transposed(const Json& lists) {
  Json objects;
  for (const auto& [key, list] : lists.items()) {
    if (!list.is_array() || (!objects.is_null() && list.size() != objects.size())) return nullptr;
    if (objects.is_null()) objects = Json(list.size(), Json::object());
    for (size_t i = 0; i < list.size(); ++i) objects[i][key] = list[i];
  }
  return objects;
}

void ReadList(const char* key, const Json& object, std::string_view text, Record& record) {
  const Json& given = object[key];
  const Json turns = given.is_object() ? Transposed(given) : given;
  if (!turns.is_array()) Refuse(Defect::kBadField, fmt::format("'{}' is no list", key));
  TurnReader reader(given.is_object() ? nullptr : key, text, record);
  for (const Json& turn : turns) reader.Read(turn);
}

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
  record.turns.push_back({Role::kAssistant, answer});
}

struct RecordForm {
  std::array<const char*, 2> keys;  // those that show it
  void (*read)(const Json& object, std::string_view text, Record& record);
};

constexpr std::array<RecordForm, 4> kForms = {{
    {{"conversations", nullptr},
     [](const Json& object, std::string_view text, Record& record) {
       ReadList("conversations", object, text, record);
     }},
    {{"messages", nullptr},
     [](const Json& object, std::string_view text, Record& record) {
       ReadList("messages", object, text, record);
     }},
    {{"instruction", "output"},
     [](const Json& object, std::string_view, Record& record) {
       std::string question = TextOf(object, "instruction", "the record");
       const auto input = object.find("input");
       if (input != object.end() && !IsEmpty(*input)) {
         question += (question.empty() ? "" : "\n") + TextOf(object, "input", "the record");
       }
       ReadPair(std::move(question), TextOf(object, "output", "the record"), object, record);
     }},
    {{"query", "response"},
     [](const Json& object, std::string_view, Record& record) {
       ReadPair(TextOf(object, "query", "the record"), TextOf(object, "response", "the record"),
                object, record);
     }},
}};

bool IsIn(const RecordForm& form, const Json& object) {
  return std::all_of(form.keys.begin(), form.keys.end(),
                     [&](const char* key) { return key == nullptr || object.contains(key); });
}

// The form of a record; null where it has none.
const RecordForm* FormOf(const Json& object) {
  const RecordForm* found = nullptr;
  for (const RecordForm& form : kForms) {
    if (!IsIn(form, object)) continue;
    if (found != nullptr) {
      Refuse(Defect::kBadField,
             fmt::format("both '{}' and '{}' are given; leave one", found->keys[0], form.keys[0]));
    }
    found = &form;
  }
  return found;
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
         "'output', 'query' with 'response'");
}

std::string ReadId(const Json& object) {
  const auto found = object.find("id");
  if (found == object.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number_integer()) return found->dump();
  Refuse(Defect::kBadField, "'id' is neither text nor a whole number");
}

// Refuses what would change the conversation and is not read.
void CheckOtherKeys(const Json& object) {
  for (const char* key : {"width", "height", "width_list", "height_list"}) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null() || found->is_number()) continue;
    const bool numbers =
        found->is_array() && std::all_of(found->begin(), found->end(),
                                         [](const Json& item) { return item.is_number(); });
    if (!numbers) {
      Refuse(Defect::kBadField, fmt::format("'{}' is neither a number nor a list of numbers", key));
    }
  }
  for (const char* key : {"audio", "audios"}) {
    const auto found = object.find(key);
    if (found != object.end() && !IsEmpty(*found))
      Refuse(Defect::kBadField, fmt::format("'{}' is not supported", key));
  }
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
      Refuse(Defect::kBadField,
             fmt::format("both '{}' and another system text are given; leave one", key));
    }
    record.turns.insert(record.turns.begin(), {Role::kSystem, text});
  }
}

}  // namespace

bool HasConversation(std::string_view text) {
  const Json object = ParseJson(text, "record");
  return object.is_object() && FormOf(object) != nullptr;
}

void ReadConversation(std::string_view text, Record& record) {
  const Json object = ParseJson(text, "record");
  if (!object.is_object()) Refuse(Defect::kBadJson, "the record is no JSON object");
  record.id = ReadId(object);
  const RecordForm* form = FormOf(object);
  if (form == nullptr) RefuseForm(object);
  form->read(object, text, record);
  AddSystem(object, record);
  CheckOtherKeys(object);
  const size_t before = record.pictures();
  ReadPictures(object, record);
  if (before > 0 && record.pictures() > before) {
    Refuse(Defect::kBadField, "pictures are given in the turns and in 'images'; leave one");
  }
  ReadVideos(object, record);
  ReadObjects(object, record);
  ReadTools(object, text, record);
}

}  // namespace equipoise
