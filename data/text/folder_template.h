#pragma once

#include <string>
#include <string_view>

#include "data/settings/chat_templates.h"

namespace equipoise {

// The form that a Jinja template is of, told by the comment of JinjaTemplate() or by its marks
// (data/settings/chat_templates.h); null where it is none of them. A template that only looks like
// a form is taken for it.
const ChatTemplateForm* RecognizeTemplate(std::string_view jinja);

// What a Jinja template is known to write otherwise than the form that it is taken for; empty:
// nothing is known.
std::string_view TemplateNote(std::string_view jinja);

// Whether a Jinja template is known to write what the form that it is taken for does: one of
// JinjaTemplate(), or a published one of Qwen's or InternVL's, which may describe functions too.
bool RendersItsForm(std::string_view jinja);

// The Jinja text of a model folder: chat_template.jinja, or `chat_template` of
// tokenizer_config.json, chat_template.json or processor_config.json. Of a model with an encoder
// the last comes first: Transformers' processor reads the last two alone, a tokenizer the first.
// Empty: it has none, or no readable file.
std::string FolderJinja(const std::string& folder);

// RecognizeTemplate() of it; null where the folder has none, too.
const ChatTemplateForm* FolderTemplate(const std::string& folder);

}  // namespace equipoise
