#include "data/records/record_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

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
  static constexpr std::array<Word, 16> kWords = {{{"human", Speaker::kUser},
                                                   {"user", Speaker::kUser},
                                                   {"gpt", Speaker::kAssistant},
                                                   {"assistant", Speaker::kAssistant},
                                                   {"bot", Speaker::kAssistant},
                                                   {"system", Speaker::kSystem},
                                                   {"developer", Speaker::kSystem},
                                                   {"function_call", Speaker::kCall},
                                                   {"function-call", Speaker::kCall},
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

// Whether a part holds what it shows. With its type alone it stands for the next of the record's
// pictures or videos; in Parquet every part has all fields, those of others null.
bool HoldsOwn(const Json& part, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) {
    const auto found = part.find(key);
    return found != part.end() && !IsEmpty(*found);
  });
}

// The type of a part: "type", or the key that tells it; empty where nothing does.
std::string TypeOf(const Json& part) {
  if (!part.is_object()) return "";
  const auto given = part.find("type");
  if (given != part.end() && !given->is_null())
    return given->is_string() ? given->get<std::string>() : "";
  for (const char* type : {"text", "image", "image_url", "video"}) {
    if (HoldsOwn(part, {type})) return type;
  }
  return "";
}

// The text of a list of parts; pictures leave `<image>` in their place, videos `<video>`, and go to
// `record`.
std::string JoinParts(const Json& parts, const std::string& where, Record& record) {
  std::string text;
  for (const Json& part : parts) {
    const std::string type = TypeOf(part);
    if (type == "text") {
      text += TextOf(part, "text", where);
    } else if (type == "image" || type == "image_url") {
      if (HoldsOwn(part, {"image_url"})) {
        AddPicture(part["image_url"], where + ": a part", record);
      } else if (HoldsOwn(part, {"bytes", "path", "url", "image"})) {
        AddPicture(part, where + ": a part", record);
      }
      text += "<image>";
    } else if (type == "video") {
      for (const char* key : {"video_start", "video_end", "nframes"}) {
        if (HoldsOwn(part, {key}))
          Refuse(Defect::kBadField,
                 fmt::format("{}: '{}' of a video is not supported", where, key));
      }
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

// The first of `keys` that the object has a value for, as in Parquet of mixed forms every object
// has all keys; null: none.
const char* FirstOf(const Json& object, std::initializer_list<const char*> keys) {
  const auto first = std::find_if(keys.begin(), keys.end(), [&](const char* key) {
    const auto found = object.find(key);
    return found != object.end() && !found->is_null();
  });
  return first == keys.end() ? nullptr : *first;
}

// Whether a list is one of parts of a content, text and pictures.
bool IsParts(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& part) {
    // A function's result may have such keys too.
    const std::string type = part.is_object() && part.contains("type") ? TypeOf(part) : "";
    return type == "text" || type == "image" || type == "image_url" || type == "video";
  });
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
    const char* who = FirstOf(turn, {"from", "role"});
    if (who == nullptr && (turn.contains("human") || turn.contains("user") ||
                           turn.contains("input") || turn.contains("tool")))
      return ReadBoth(turn, where);
    if (who == nullptr) who = turn.contains("role") ? "role" : "from";
    const char* what = std::string_view(who) == "role" ? "content" : "value";
    const char* other = std::string_view(who) == "role" ? "value" : "content";
    if (FirstOf(turn, {what}) == nullptr && FirstOf(turn, {other}) != nullptr) what = other;
    const auto speaker = SpeakerOf(TextOf(turn, who, where));
    if (!speaker) {
      Refuse(Defect::kBadField,
             fmt::format("{}: '{}' is none of human, user, gpt, assistant, system, function_call, "
                         "observation, tool",
                         where, who));
    }
    std::string content = Content(turn, what, *speaker, where);
    if (speaker == Speaker::kAssistant || speaker == Speaker::kCall)
      content.insert(0, ThoughtOf(turn, {"reasoning", "thinking"}, where));
    Add(*speaker, std::move(content), IsTrained(turn, where), where);
  }

 private:
  // A question and its answer; the question may be empty.
  void ReadBoth(const Json& pair, const std::string& where) {
    const char* question = FirstOf(pair, {"human", "user", "input", "tool"});
    const char* answer = FirstOf(pair, {"assistant", "gpt", "bot", "output"});
    if (answer == nullptr)
      Refuse(Defect::kBadField, where + " has a question and no answer ('assistant')");
    const auto system = pair.find("system");
    if (system != pair.end() && !IsEmpty(*system) && record_.turns.empty())
      Add(Speaker::kSystem, TextOf(pair, "system", where), true, where);
    const bool result = question != nullptr && std::string_view(question) == "tool";
    Add(result ? Speaker::kResult : Speaker::kUser,
        question == nullptr ? "" : TextOf(pair, question, where), true, where);
    Add(Speaker::kAssistant, TextOf(pair, answer, where), IsTrained(pair, where), where);
  }

  // The value of a turn's key, with its keys in their order.
  const nlohmann::ordered_json& Ordered(const char* key, const std::string& where) {
    if (list_ == nullptr)
      Refuse(Defect::kBadField, fmt::format("{}: '{}' holds an object, in an object of lists; "
                                            "write it as JSON text",
                                            where, key));
    if (!ordered_) ordered_ = nlohmann::ordered_json::parse(text_);
    return (*ordered_)[list_][number_ - 1][key];
  }

  std::string Content(const Json& turn, const char* key, Speaker speaker,
                      const std::string& where) {
    const auto found = turn.find(key);
    if ((speaker == Speaker::kCall || speaker == Speaker::kResult) && found != turn.end() &&
        !found->is_string() && !found->is_null() && !(found->is_array() && IsParts(*found)))
      return PythonJson(Ordered(key, where));
    const std::string calls = CallsOf(turn, where);
    std::string content;
    if (found != turn.end() && found->is_array()) {
      const size_t shown = record_.images.size() + record_.videos.size();
      content = JoinParts(*found, where, record_);
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
      return CallsText(Ordered(key, where).dump(), where);
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
        if (Follows(Role::kUser) && !after_result) {
          turns.back().text += content;
        } else {
          turns.push_back({Role::kUser, std::move(content)});
        }
        return;
      case Speaker::kAssistant:
        AddAnswer(std::move(content), "", trained, where);
        return;
      case Speaker::kCall:
        // Calls stand on lines of their own.
        AddAnswer(CallsText(content, where), "\n", trained, where);
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

  bool Follows(Role role) const {
    return !record_.turns.empty() && record_.turns.back().role == role;
  }

  // What the assistant says or calls behind what it said or called before is in the same turn.
  void AddAnswer(std::string text, const char* between, bool trained, const std::string& where) {
    std::vector<Turn>& turns = record_.turns;
    if (!Follows(Role::kAssistant)) {
      turns.push_back({Role::kAssistant, std::move(text), trained});
      return;
    }
    if (turns.back().trained != trained) {
      Refuse(Defect::kBadField, where +
                                    ": this turn and the assistant's before it become one; one of "
                                    "them is trained on, and the other is not");
    }
    turns.back().text += between + text;
  }

  const char* list_;
  std::string_view text_;
  Record& record_;
  size_t number_ = 0;
  bool after_result_ = false;
  std::optional<nlohmann::ordered_json> ordered_;
};

}  // namespace

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

std::string ThoughtOf(const Json& object, std::initializer_list<const char*> other,
                      const std::string& where) {
  const auto has = [&](const char* key) {
    const auto found = object.find(key);
    return found != object.end() && !IsEmpty(*found);
  };
  const auto found = std::find_if(other.begin(), other.end(), has);
  const char* key = has("reasoning_content") || found == other.end() ? "reasoning_content" : *found;
  if (!has(key)) return "";
  std::string_view text = TextOf(object, key, where);
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return fmt::format("<think>\n{}\n</think>\n\n", text);
}

void ReadTurns(const char* key, const Json& object, std::string_view text, Record& record) {
  const Json& given = object[key];
  const Json turns = given.is_object() ? Transposed(given) : given;
  if (!turns.is_array()) Refuse(Defect::kBadField, fmt::format("'{}' is no list", key));
  TurnReader reader(given.is_object() ? nullptr : key, text, record);
  for (const Json& turn : turns) reader.Read(turn);
}

void BeginWithQuestion(bool drop, Record& record) {
  std::vector<Turn>& turns = record.turns;
  const auto is_answer = [](const Turn& turn) { return turn.role == Role::kAssistant; };
  const auto first = turns.begin() + (!turns.empty() && turns[0].role == Role::kSystem ? 1 : 0);
  const auto question = std::find_if_not(first, turns.end(), is_answer);
  if (question == first) return;
  if (!drop || question == turns.end()) {
    turns.insert(first, {Role::kUser, ""});
  } else if (std::none_of(first, question, [](const Turn& turn) {
               return CountOf("<image>", turn.text) + CountOf("<video>", turn.text) > 0;
             })) {
    turns.erase(first, question);
  }
}

}  // namespace equipoise
