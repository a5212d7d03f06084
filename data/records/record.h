#pragma once

#include <string>
#include <string_view>

#include "data/records/defect.h"
#include "data/settings/record_keys.h"
#include "data/text/conversation.h"

namespace equipoise {

// A parsed record, or the defect that makes it unusable.
struct ParsedRecord {
  Record record;
  Defect defect = Defect::kNone;
  std::string reason;  // one line, empty without a defect
};

// Parses a record in one of the forms of record_forms.h: LLaVA's and ShareGPT's `conversations`,
// OpenAI's `messages`, Alpaca's `instruction` and `output`, ms-swift's `query` and `response`.
// An assistant's turn with "weight": 0 (or "loss": false) is read and not trained on. Width and
// height are not used: the picture's own head decides. Other keys are ignored. A record with one
// picture and no `<image>` gets `<image>` and a line end before its first user turn, as InternVL
// does; otherwise the user turns hold as many `<image>` as there are pictures. `<image>` in other
// turns is text. Defective records keep their id where it can be read. `keys` are those of the
// source, where its records have others (known_keys.h). Pure; never throws.
ParsedRecord ParseRecord(std::string_view text, const RecordKeys& keys = {});

// Checks the order of a record's turns, and that something is trained on; makes its `<image>` agree
// with its pictures. Throws Refusal (refusal.h).
void CheckRecord(Record& record);

}  // namespace equipoise
