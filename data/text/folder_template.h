#pragma once

#include <string>
#include <string_view>

#include "data/settings/chat_templates.h"

namespace equipoise {

// The form that a Jinja template is of, told by the comment of JinjaTemplate() or by its marks
// (data/settings/chat_templates.h); null where it is none of them. A template that only looks like
// a form is taken for it.
const ChatTemplateForm* RecognizeTemplate(std::string_view jinja);

// The form of a model folder's own template: chat_template.jinja, or `chat_template` of
// tokenizer_config.json, chat_template.json or processor_config.json. Null: the folder has none
// that is known, or no readable file.
const ChatTemplateForm* FolderTemplate(const std::string& folder);

}  // namespace equipoise
