#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

enum class Role { kSystem, kUser, kAssistant };

// One message of a conversation.
struct Turn {
  Role role;
  std::string text;     // in user turns `<image>` marks the place of a picture
  bool trained = true;  // an assistant's turn: false where the record excludes it from training
};

// One line of a JSONL file in the LLaVA / InternVL form.
struct Record {
  std::string id;
  std::vector<std::string> images;  // as written: relative to the source's folder
  std::vector<Turn> turns;
};

}  // namespace equipoise
