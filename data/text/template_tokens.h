#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/settings/chat_templates.h"
#include "data/text/tokenizer.h"

namespace equipoise {

// Whether a conversation begins with Tokenizer::begin_token() as the tokenizer lacks form.begin.
bool TakesOtherBegin(const ChatTemplateForm& form, const Tokenizer& tokenizer);

// Throws DataError: the template `name` needs `what`, which the tokenizer lacks; with the forms
// that its tokens fit, the folder's own first. `token`: the one that is missing, where it is one.
[[noreturn]] void RefuseTemplate(const Tokenizer& tokenizer, std::string_view name,
                                 const std::string& what, std::string_view token = "");

// The id of a token that the template `name` needs. Throws as RefuseTemplate().
int32_t RequiredToken(const Tokenizer& tokenizer, std::string_view token, std::string_view name);

// Throws where the tokenizer has no added token of those that the form names, or leaves one out
// that stands in a text of it.
void RequireTokens(const ChatTemplateForm& form, const Tokenizer& tokenizer);

// Whether the tokenizer leaves `token` out.
bool LeavesOut(const Tokenizer& tokenizer, std::string_view token);

}  // namespace equipoise
