#pragma once

#include <string>
#include <string_view>

#include "data/records/defect.h"
#include "data/text/conversation.h"

namespace equipoise {

// A parsed record, or the defect that makes it unusable.
struct ParsedRecord {
  Record record;
  Defect defect = Defect::kNone;
  std::string reason;  // one line, empty without a defect
};

// Parses one line of a JSONL file in the LLaVA / InternVL form:
//   {"id": text | number, "image": path | [path…] (or "images"), "width", "height",
//    "conversations": [{"from": human|user|gpt|assistant|system, "value": text}…]}
// An assistant's turn with "weight": 0 (or "loss": false) is read and not trained on. An absent,
// null or empty `image` means text only. Width and height are checked for their type and not used:
// the picture's own head decides. Other keys are ignored. A record with one picture and no
// `<image>` gets `<image>` and a line end before its first user turn, as InternVL does; otherwise
// the user turns hold as many `<image>` as there are pictures. `<image>` in other turns is text.
// Defective records keep their id where it can be read. Pure; never throws.
ParsedRecord ParseRecord(std::string_view line);

}  // namespace equipoise
