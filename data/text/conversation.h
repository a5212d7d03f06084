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

// A conversation and its pictures, whatever form it was read from.
struct Record {
  std::string id;
  std::vector<std::string> images;  // as written: relative to the source's folder
  // By picture, the bytes of those that lie in the record itself; empty for those in files. Of the
  // size of `images` where any does, else empty.
  std::vector<std::string> held;
  // While a record is parsed: bytes that its file holds beside it, which a picture names by number.
  std::vector<std::string> given;
  std::vector<Turn> turns;
  std::string tools;  // descriptions of functions, JSON, one a line
};

}  // namespace equipoise
