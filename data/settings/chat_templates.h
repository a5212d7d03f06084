#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// A chat template of ChatML's form: each turn is <|im_start|>, the role, a line break, the text and
// <|im_end|>.
struct ChatTemplateForm {
  std::string_view name;         // of data.template
  std::string_view system;       // where a record has none; empty: no system turn then
  const char* begin = nullptr;   // a token before the first turn
  bool newline = true;           // a line break after each turn
  bool tokenizer_begin = false;  // Tokenizer::begin_token() before the first turn
};

// System texts and forms of InternVL: conversation.py of OpenGVLab's code, and the tokens that its
// preprocess_* functions put before a conversation.
inline constexpr std::string_view kInternVl2System =
    "你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，英文名叫InternVL, "
    "是一个有用无害的人工智能助手。";
inline constexpr std::array<ChatTemplateForm, 4> kChatTemplates = {{
    {"chatml", ""},  // Qwen's, without a system text of its own
    {"internvl2_5",
     "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模"
     "态大语言模型。",
     nullptr, /*newline=*/true, /*tokenizer_begin=*/true},
    {"internlm2-chat", kInternVl2System, "<s>", /*newline=*/false},
    {"Hermes-2", kInternVl2System, nullptr, /*newline=*/false},
}};

// The template of that name; null where there is none.
inline const ChatTemplateForm* FindChatTemplate(std::string_view name) {
  for (const ChatTemplateForm& form : kChatTemplates) {
    if (form.name == name) return &form;
  }
  return nullptr;
}

inline std::vector<std::string> ChatTemplateNames() {
  std::vector<std::string> names;
  names.reserve(kChatTemplates.size());
  for (const ChatTemplateForm& form : kChatTemplates) names.emplace_back(form.name);
  return names;
}

}  // namespace equipoise
