#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "data/settings/chat_template_form.h"
#include "data/settings/system_texts.h"

namespace equipoise {

// ChatML: each turn is <|im_start|>, the role, a line break, the text, <|im_end|> and `newline`.
constexpr ChatTemplateForm ChatMl(std::string_view name, std::string_view system,
                                  bool newline = true) {
  ChatTemplateForm form;
  form.name = name;
  form.system = system;
  form.system_turn = {"<|im_start|>system\n", newline ? "<|im_end|>\n" : "<|im_end|>"};
  form.user = {"<|im_start|>user\n", newline ? "<|im_end|>\n" : "<|im_end|>"};
  form.answer = {"<|im_start|>assistant\n", "<|im_end|>"};
  form.rest = newline ? "\n" : "";
  form.end_of_turn = "<|im_end|>";
  form.tokens = {"<|im_start|>", "<|im_end|>"};
  return form;
}

constexpr ChatTemplateForm WithMarks(ChatTemplateForm form, std::string_view one,
                                     std::string_view two = "", std::string_view three = "") {
  form.marks = {one, two, three};
  // Behind a role in place of a line break: Phi-4's, and LLaVA-OneVision's.
  form.never = {"<|im_sep|>", "message['role'] + ' '"};
  return form;
}

constexpr ChatTemplateForm WithTools(ChatTemplateForm form) {
  form.takes_tools = true;
  return form;
}

constexpr ChatTemplateForm WithThinking(ChatTemplateForm form, Thinking thinking) {
  form.thinking = thinking;
  return form;
}

constexpr ChatTemplateForm WithBegin(ChatTemplateForm form, std::string_view begin) {
  form.begin = form.tokens[2] = begin;
  form.tokenizer_begin = begin.empty();
  return form;
}

// Over another language model than InternLM2, OpenGVLab's code begins with the tokenizer's token.
constexpr ChatTemplateForm InternLm2Chat() {
  ChatTemplateForm form =
      WithBegin(ChatMl("internlm2-chat", kInternVl2System, /*newline=*/false), "<s>");
  form.other_begin = true;
  return form;
}

// LLaVA 1.5's (vicuna_v1): "SYSTEM USER: question ASSISTANT: answer</s>".
constexpr ChatTemplateForm Vicuna() {
  ChatTemplateForm form;
  form.name = "vicuna_v1";
  form.system = kVicunaSystem;
  form.system_turn = {"", " "};
  form.user = {"USER: ", " "};
  form.answer = {"ASSISTANT:", "</s>"};
  form.lead = " ";
  form.end_of_turn = "</s>";
  form.tokenizer_begin = true;
  form.tokens = {"</s>"};
  form.marks = {"ASSISTANT:"};
  return form;
}

constexpr ChatTemplateForm Llama2() {
  ChatTemplateForm form;
  form.name = "llama-2";
  form.system_turn = {"<<SYS>>\n", "\n<</SYS>>\n\n"};
  form.user = {"<s>[INST] ", " [/INST]", /*trim=*/true};
  form.answer = {"", " </s>", /*trim=*/true};
  form.lead = " ";
  form.end_of_turn = "</s>";
  form.place = SystemPlace::kFirstUser;
  form.tokens = {"<s>", "</s>"};
  form.marks = {"[INST]", "<<SYS>>"};
  return form;
}

constexpr ChatTemplateForm Llama3() {
  ChatTemplateForm form;
  form.name = "llama-3";
  form.system_turn = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>", true};
  form.user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>", true};
  form.answer = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", true};
  form.end_of_turn = "<|eot_id|>";
  form.begin = "<|begin_of_text|>";
  form.tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  form.marks = {"<|start_header_id|>", "<|eot_id|>"};
  form.never = {"Cutting Knowledge Date"};  // Llama 3.1's, with a date in its system text
  return form;
}

// Mistral's: `v3` of Mistral-7B-Instruct-v0.3 and its tokenizer, else of v0.1 and v0.2.
constexpr ChatTemplateForm Mistral(bool v3) {
  ChatTemplateForm form;
  form.name = v3 ? "mistral-v3" : "mistral-v1";
  form.system_turn = {"", "\n\n"};
  form.user = {v3 ? "[INST] " : " [INST] ", v3 ? "[/INST]" : " [/INST]"};
  form.answer = {"", "</s>", /*trim=*/v3};
  form.lead = " ";
  form.end_of_turn = "</s>";
  form.begin = "<s>";
  form.place = v3 ? SystemPlace::kLastUser : SystemPlace::kFirstUser;
  form.tokens = {"<s>", "</s>"};
  form.marks = {"[INST] ", v3 ? "\"[/INST]\"" : " [/INST]", "system_message"};
  form.never = {"<<SYS>>"};
  return form;
}

// LLaVA-NeXT's over Mistral (mistral_instruct): Llama 2's, with <s> before the first turn alone.
constexpr ChatTemplateForm LlavaMistral() {
  ChatTemplateForm form = Llama2();
  form.name = "llava-mistral";
  form.user = {"[INST] ", " [/INST]"};
  form.answer = {"", " </s>"};
  form.begin = "<s>";
  form.marks = {"[INST] ", " [/INST]", "'equalto', 'image'"};
  return form;
}

constexpr ChatTemplateForm Phi3() {
  ChatTemplateForm form;
  form.name = "phi-3";
  form.system_turn = {"<|system|>\n", "<|end|>\n"};
  form.user = {"<|user|>\n", "<|end|>\n"};
  form.answer = {"<|assistant|>\n", "<|end|>"};
  form.rest = "\n";
  form.end_of_turn = "<|end|>";
  form.finish = "<|endoftext|>";
  form.tokens = {"<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"};
  form.marks = {"<|user|>", "<|end|>", "eos_token"};
  return form;
}

// Phi-4-mini's: Phi-3's without line breaks.
constexpr ChatTemplateForm Phi4Mini() {
  ChatTemplateForm form = Phi3();
  form.name = "phi-4-mini";
  form.system_turn = {"<|system|>", "<|end|>"};
  form.user = {"<|user|>", "<|end|>"};
  form.answer = {"<|assistant|>", "<|end|>"};
  form.rest = "";
  form.marks = {"'|>' + message['content'] + '<|end|>'", "'<|assistant|>'", "eos_token"};
  return form;
}

// Phi-4's, which has ChatML's tokens with one more behind the role.
constexpr ChatTemplateForm Phi4() {
  ChatTemplateForm form;
  form.name = "phi-4";
  form.system_turn = {"<|im_start|>system<|im_sep|>", "<|im_end|>"};
  form.user = {"<|im_start|>user<|im_sep|>", "<|im_end|>"};
  form.answer = {"<|im_start|>assistant<|im_sep|>", "<|im_end|>"};
  form.end_of_turn = "<|im_end|>";
  form.tokens = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"};
  form.marks = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"};
  return form;
}

// InternVL2-4B's, conversation.py of OpenGVLab's code (phi3-chat).
constexpr ChatTemplateForm Phi3Chat() {
  ChatTemplateForm form;
  form.name = "phi3-chat";
  form.system = kInternVl2System;
  form.system_turn = {"<|system|>\n", "<|end|>"};
  form.user = {"<|user|>\n", "<|end|>"};
  form.answer = {"<|assistant|>\n", "<|end|>"};
  form.end_of_turn = "<|end|>";
  form.tokenizer_begin = true;
  form.tokens = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"};
  return form;
}

// LLaVA's pretraining of the projector: pictures, and the answer with a line break.
constexpr ChatTemplateForm Plain() {
  ChatTemplateForm form;
  form.name = "plain";
  form.answer = {"", "\n"};
  form.tokenizer_begin = true;
  form.pictures_only = true;
  return form;
}

inline constexpr std::array kChatTemplates = {
    WithTools(WithMarks(ChatMl("chatml", ""), "<|im_start|>", "<|im_end|>")),
    WithBegin(ChatMl("internvl2_5", kInternVl25System), ""),
    InternLm2Chat(),
    ChatMl("Hermes-2", kInternVl2System, /*newline=*/false),
    WithMarks(WithBegin(ChatMl("internlm2", ""), "<s>"), "<|im_start|>", "bos_token"),
    WithMarks(ChatMl("qwen2-vl", kQwen2System), "<|im_start|>", kQwen2System),
    WithTools(WithMarks(ChatMl("qwen2_5", kQwen25System), "<|im_start|>", kQwen25System)),
    WithThinking(WithTools(WithMarks(ChatMl("qwen3", ""), "<|im_start|>", "</think>")),
                 Thinking::kOn),
    WithThinking(WithTools(ChatMl("qwen3_no_thinking", "")), Thinking::kOff),
    Vicuna(),
    Llama2(),
    Llama3(),
    Mistral(/*v3=*/false),
    Mistral(/*v3=*/true),
    LlavaMistral(),
    Phi3(),
    Phi3Chat(),
    Phi4(),
    Phi4Mini(),
    Plain(),
};

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

// data.template: that of the model's folder, kCommonTemplate where it tells none.
inline constexpr std::string_view kAutoTemplate = "auto";
inline constexpr std::string_view kCommonTemplate = "chatml";

// What data.template may be.
inline std::vector<std::string> TemplateSettings() {
  std::vector<std::string> settings = ChatTemplateNames();
  settings.insert(settings.begin(), std::string(kAutoTemplate));
  return settings;
}

}  // namespace equipoise
