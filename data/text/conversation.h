#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace equipoise {

enum class Role { kSystem, kUser, kAssistant };

struct Turn {
  Role role;
  std::string text;     // `<image>` stands for a picture in user turns
  bool trained = true;  // of the assistant's: false where the record says not to learn it
};

// One line of a JSONL file in the LLaVA / InternVL form.
struct Record {
  std::string id;
  std::vector<std::string> images;  // as written: relative to the source's folder
  std::vector<Turn> turns;
};

}  // namespace equipoise
