#include "data/records/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "data/text/chat_template.h"

namespace equipoise {
namespace {

// Thrown by nested checks, and caught in this file.
struct Refusal {
  Defect defect;
  std::string reason;
};

[[noreturn]] void Refuse(Defect defect, std::string reason) {
  throw Refusal{defect, std::move(reason)};
}

bool IsEmpty(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_array() && value.empty());
}

std::string ReadId(const Json& object) {
  const auto found = object.find("id");
  if (found == object.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number_integer()) return found->dump();
  Refuse(Defect::kBadField, "'id' is neither text nor a whole number");
}

std::vector<std::string> ReadImages(const Json& object) {
  const Json* value = nullptr;
  const char* name = "image";
  for (const char* key : {"image", "images"}) {
    const auto found = object.find(key);
    if (found == object.end() || IsEmpty(*found)) continue;
    if (value != nullptr) Refuse(Defect::kBadField, "both 'image' and 'images' are given");
    value = &*found;
    name = key;
  }
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  const std::string bad = fmt::format("'{}' is neither a path nor a list of paths", name);
  if (!value->is_array()) Refuse(Defect::kBadField, bad);
  std::vector<std::string> images;
  for (const Json& item : *value) {
    if (!item.is_string() || IsEmpty(item)) Refuse(Defect::kBadField, bad);
    images.push_back(item.get<std::string>());
  }
  return images;
}

void CheckSizes(const Json& object) {
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
  const auto video = object.find("video");
  if (video != object.end() && !IsEmpty(*video)) {
    Refuse(Defect::kBadField, "'video' is not supported");
  }
}

std::optional<Role> RoleOf(const std::string& from) {
  if (from == "human" || from == "user") return Role::kUser;
  if (from == "gpt" || from == "assistant") return Role::kAssistant;
  if (from == "system") return Role::kSystem;
  return std::nullopt;
}

// `weight` (0 or 1) of LLaMA-Factory and OpenAI's form, `loss` of ms-swift.
bool IsTrained(const Json& turn, const std::string& where) {
  for (const char* key : {"weight", "loss"}) {
    const auto found = turn.find(key);
    if (found == turn.end() || found->is_null()) continue;
    if (*found == Json(0) || *found == Json(false)) return false;
    if (*found != Json(1) && *found != Json(true)) {
      Refuse(Defect::kBadField, fmt::format("{}: '{}' is neither 0 nor 1", where, key));
    }
  }
  return true;
}

// The reason to refuse a record without 'conversations', by the trainer whose form it has.
std::string OtherForm(const Json& object) {
  const auto has = [&](const char* key) { return object.contains(key); };
  const std::string turns =
      "write 'conversations': [{\"from\": \"human\", \"value\": ...}, {\"from\": \"gpt\", "
      "\"value\": ...}]";
  if (has("messages")) return "it has OpenAI's 'messages'; " + turns;
  if (has("instruction") && has("output"))
    return "it has Alpaca's 'instruction' and 'output'; " + turns;
  if (has("query") && has("response")) return "it has ms-swift's 'query' and 'response'; " + turns;
  if (has("question") && has("answer")) return "it has 'question' and 'answer'; " + turns;
  for (const Json& value : object) {
    if (value.is_object() && value.contains("annotation"))
      return "this is a meta file of InternVL; write each of its sources as an item of data.train";
  }
  return "it is not in LLaVA's form; " + turns;
}

Turn ReadTurn(const Json& turn, size_t number) {
  const std::string where = fmt::format("turn {}", number);
  if (!turn.is_object()) Refuse(Defect::kBadField, where + " is no object");
  for (const char* key : {"from", "value"}) {
    const auto found = turn.find(key);
    if (found == turn.end()) {
      const bool other = turn.contains("role") && turn.contains("content");
      Refuse(Defect::kBadField,
             fmt::format("{} has no '{}'{}", where, key,
                         other ? "; write 'from' for 'role', 'value' for 'content'" : ""));
    }
    if (!found->is_string())
      Refuse(Defect::kBadField, fmt::format("{}: '{}' is no text", where, key));
  }
  const auto role = RoleOf(turn["from"].get_ref<const std::string&>());
  if (!role) {
    Refuse(Defect::kBadField, where + ": 'from' is none of human, user, gpt, assistant, system");
  }
  return {*role, turn["value"].get<std::string>(), IsTrained(turn, where)};
}

std::vector<Turn> ReadTurns(const Json& object) {
  const auto found = object.find("conversations");
  if (found == object.end()) {
    Refuse(Defect::kBadField, "there is no 'conversations': " + OtherForm(object));
  }
  if (!found->is_array()) Refuse(Defect::kBadField, "'conversations' is no list");
  std::vector<Turn> turns;
  for (const Json& item : *found) turns.push_back(ReadTurn(item, turns.size() + 1));
  return turns;
}

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n\f\v") == std::string::npos;
}

// Requires an optional system turn, then user and assistant alternately, at least one of each.
void CheckOrder(const std::vector<Turn>& turns) {
  const size_t first = !turns.empty() && turns[0].role == Role::kSystem ? 1 : 0;
  if (turns.size() < first + 2) {
    Refuse(Defect::kNoConversation, "there is no question with an answer");
  }
  bool blank = true;
  for (size_t i = first; i < turns.size(); ++i) {
    const Role expected = (i - first) % 2 == 0 ? Role::kUser : Role::kAssistant;
    if (turns[i].role != expected) {
      Refuse(Defect::kNoConversation,
             fmt::format("turn {} is not the {}", i + 1,
                         expected == Role::kUser ? "user's" : "assistant's"));
    }
    const bool trained = expected == Role::kAssistant && turns[i].trained;
    if (trained && !IsBlank(turns[i].text)) blank = false;
  }
  if (blank) Refuse(Defect::kNothingTrained, "all answers are empty, or have weight 0");
}

void Fill(std::string_view line, Record& record) {
  const Json object = ParseJson(line, "record");
  if (!object.is_object()) Refuse(Defect::kBadJson, "the line is no JSON object");
  record.id = ReadId(object);
  record.turns = ReadTurns(object);
  CheckOrder(record.turns);
  CheckSizes(object);
  record.images = ReadImages(object);
  const std::string wrong = PlaceImages(record.turns, record.images.size());
  if (!wrong.empty()) Refuse(Defect::kPlaceholders, wrong);
}

}  // namespace

ParsedRecord ParseRecord(std::string_view line) {
  ParsedRecord parsed;
  try {
    Fill(line, parsed.record);
  } catch (const Refusal& refusal) {
    parsed.defect = refusal.defect;
    parsed.reason = refusal.reason;
  } catch (const DataError& error) {
    parsed.defect = Defect::kBadJson;
    parsed.reason = error.what();
  }
  return parsed;
}

}  // namespace equipoise
