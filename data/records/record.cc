#include "data/records/record.h"

#include <fmt/format.h>

#include "data/records/known_keys.h"
#include "data/records/record_forms.h"
#include "data/records/refusal.h"
#include "data/text/chat_template.h"

namespace equipoise {
namespace {

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
             fmt::format("turn {} is not the {} (turns of one speaker in a row are one)", i + 1,
                         expected == Role::kUser ? "user's" : "assistant's"));
    }
    const bool trained = expected == Role::kAssistant && turns[i].trained;
    if (trained && !IsBlank(turns[i].text)) blank = false;
  }
  if (blank) Refuse(Defect::kNothingTrained, "all answers are empty, or have weight 0");
}

}  // namespace

void CheckRecord(Record& record) {
  CheckOrder(record.turns);
  const std::string wrong = PlaceImages(record.turns, record.pictures());
  if (!wrong.empty()) Refuse(Defect::kPlaceholders, wrong);
}

ParsedRecord ParseRecord(std::string_view text, const RecordKeys& keys) {
  return Guarded([&](Record& record) {
    std::string held;
    ReadConversation(InKnownKeys(text, keys, held), record);
    CheckRecord(record);
  });
}

}  // namespace equipoise
