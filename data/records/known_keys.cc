#include "data/records/known_keys.h"

#include <fmt/format.h>

#include <utility>

#include "configs/base/json.h"
#include "data/records/record_turns.h"
#include "data/records/refusal.h"

namespace equipoise {
namespace {

using OrderedJson = nlohmann::ordered_json;  // the order of the keys of a function's call counts

// The value of a column; null where the record has none, or `key` is empty.
const OrderedJson& ValueOf(const OrderedJson& object, const std::string& key) {
  static const OrderedJson kNull;
  const auto found = key.empty() ? object.end() : object.find(key);
  return found == object.end() ? kNull : *found;
}

[[noreturn]] void RefuseColumn(const std::string& key, const char* column, const char* what) {
  Refuse(Defect::kBadField,
         fmt::format("'{}' {}, the source's columns.{}", ShownName(key), what, column));
}

const OrderedJson& Required(const OrderedJson& object, const std::string& key, const char* column) {
  const OrderedJson& value = ValueOf(object, key);
  if (value.is_null()) RefuseColumn(key, column, "is missing");
  return value;
}

// The text of a column; null where the record has none.
const OrderedJson& TextOf(const OrderedJson& object, const std::string& key, const char* column) {
  const OrderedJson& value = ValueOf(object, key);
  if (!value.is_null() && !value.is_string()) RefuseColumn(key, column, "is no text");
  return value;
}

const OrderedJson& RequiredText(const OrderedJson& object, const std::string& key,
                                const char* column) {
  Required(object, key, column);
  return TextOf(object, key, column);
}

// The known word for who speaks; `word` itself where no tag is it.
std::string RoleOf(const std::string& word, const RecordTags& tags) {
  const std::pair<const std::string&, const char*> known[] = {{tags.user_tag, "user"},
                                                              {tags.assistant_tag, "assistant"},
                                                              {tags.system_tag, "system"},
                                                              {tags.function_tag, "function_call"},
                                                              {tags.observation_tag, "tool"}};
  for (const auto& [tag, role] : known) {
    if (!tag.empty() && tag == word) return role;
  }
  return word;
}

// Whichever of two keys stands in a turn where no tag names one.
std::string KeyOf(const OrderedJson& turn, const std::string& tag, const char* one,
                  const char* other) {
  if (!tag.empty()) return tag;
  return turn.contains(one) ? one : other;
}

OrderedJson TurnOf(OrderedJson turn, const RecordTags& tags, size_t number) {
  if (!turn.is_object()) Refuse(Defect::kBadField, fmt::format("turn {} is no object", number));
  const std::string role = KeyOf(turn, tags.role_tag, "from", "role"),
                    content = KeyOf(turn, tags.content_tag, "value", "content");
  const OrderedJson speaker = ValueOf(turn, role), text = ValueOf(turn, content);
  if (!speaker.is_string()) {
    Refuse(Defect::kBadField, fmt::format("turn {} has no text '{}', which tells who speaks",
                                          number, ShownName(role)));
  }
  turn.erase(role);
  turn.erase(content);
  turn["role"] = RoleOf(speaker.get_ref<const std::string&>(), tags);
  if (!text.is_null()) turn["content"] = text;
  return turn;
}

OrderedJson TurnsOf(const OrderedJson& given, const RecordKeys& keys, const std::string& key) {
  OrderedJson turns = given.is_object() ? Transposed(given) : given;
  if (!turns.is_array()) RefuseColumn(key, "messages", "is no list");
  if (!keys.tags) return turns;
  OrderedJson known = OrderedJson::array();
  for (const OrderedJson& turn : turns) known.push_back(TurnOf(turn, *keys.tags, known.size() + 1));
  return known;
}

// Tags alone: the record has the keys of a conversation itself; in Parquet of mixed forms all have
// all keys, those of other forms null.
OrderedJson WithTurns(OrderedJson object, const RecordKeys& keys) {
  for (const char* key : {"conversations", "messages"}) {
    const auto found = object.find(key);
    if (found != object.end() && !found->is_null()) *found = TurnsOf(*found, keys, key);
  }
  return object;
}

OrderedJson WithColumns(const OrderedJson& object, const RecordKeys& keys) {
  const RecordColumns& columns = *keys.columns;
  OrderedJson known;
  if (!columns.messages.empty()) {
    const OrderedJson& turns = Required(object, columns.messages, "messages");
    known["messages"] = TurnsOf(turns, keys, columns.messages);
  } else {
    known["instruction"] =
        columns.prompt.empty() ? "" : RequiredText(object, columns.prompt, "prompt");
    known["input"] = TextOf(object, columns.query, "query");
    known["output"] = RequiredText(object, columns.response, "response");
    known["history"] = ValueOf(object, columns.history);
  }
  // As in LLaMA-Factory a conversation's own system turn counts before the column.
  const OrderedJson& turns = ValueOf(known, "messages");
  const bool own = turns.is_array() && !turns.empty() && turns[0].is_object() &&
                   ValueOf(turns[0], KeyOf(turns[0], "", "from", "role")) == "system";
  if (!own) known["system"] = TextOf(object, columns.system, "system");
  known["tools"] = ValueOf(object, columns.tools);
  known["images"] = ValueOf(object, columns.images);
  const OrderedJson& videos = ValueOf(object, columns.videos);
  known[videos.is_array() ? "videos" : "video"] = videos;
  for (const char* key : {"id", "objects"}) known[key] = ValueOf(object, key);
  return known;
}

}  // namespace

std::string_view InKnownKeys(std::string_view text, const RecordKeys& keys, std::string& held) {
  if (!keys.given()) return text;
  // Its rules (repeated keys, depth, UTF-8) are those of all records.
  if (!ParseJson(text, "record").is_object()) return text;
  const OrderedJson object = OrderedJson::parse(text);
  held = (keys.columns ? WithColumns(object, keys) : WithTurns(object, keys)).dump();
  return held;
}

}  // namespace equipoise
