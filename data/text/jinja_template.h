#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/settings/chat_templates.h"

namespace equipoise {

// What a template has of one model.
struct JinjaTexts {
  std::string_view system;   // where the messages begin with none; empty: no system text then
  std::string_view begin;    // the token before a conversation
  std::string_view picture;  // in place of a picture; Transformers' processor repeats it
};

// The program for Transformers' apply_chat_template that renders what ChatTemplate encodes, for a
// model that takes pictures: a part {"type": "image"} of a user's content stands for "<image>\n" of
// a record. Begins with a comment by which RecognizeTemplate() tells the form. It raises what has
// no place in a conversation here: functions, videos, and roles other than system, user and
// assistant.
std::string JinjaTemplate(const ChatTemplateForm& form, const JinjaTexts& texts);

// The `system` of such a program; absent: the text is none.
std::optional<std::string> SystemOfJinjaTemplate(std::string_view jinja);

// The form that the comment of such a program names; null: the text has no such comment.
const ChatTemplateForm* FormOfJinjaTemplate(std::string_view jinja);

}  // namespace equipoise
