#include "data/text/folder_template.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/base/regular_file.h"
#include "data/text/jinja_template.h"

namespace equipoise {
namespace {

constexpr size_t kLongest = size_t{1} << 24;

// `chat_template`: a text, or a list of named ones of which `default` counts.
std::string TemplateOf(const Json& json) {
  if (!json.is_object() || !json.contains("chat_template")) return "";
  const Json& found = json["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  if (!found.is_array()) return "";
  for (const Json& each : found) {
    if (each.is_object() && each.value("name", Json()) == "default" && each.contains("template") &&
        each["template"].is_string()) {
      return each["template"].get<std::string>();
    }
  }
  return "";
}

// A published template that writes more or less than the form it is taken for.
struct Variant {
  std::string_view form;
  std::array<std::string_view, 3> marks;  // that all stand in it
  std::array<std::string_view, 2> never;  // that do not
  std::string_view note;                  // what differs
};

constexpr std::array kVariants = {
    // Llama 3.1, 3.2 and 3.3.
    Variant{"llama-3",
            {"<|start_header_id|>", "<|eot_id|>", "Cutting Knowledge Date"},
            {},
            "writes two dates, and what functions there are, into a system turn; this form writes "
            "the system text alone"},
    // QwQ, Qwen3's and Qwen3-VL's Thinking models.
    Variant{"qwen3",
            {"<|im_end|>", "</think>", "<|im_start|>assistant\\n<think>"},
            {},
            "begins a thought in every prompt; this form leaves it to the answer"},
    // Mistral-7B-Instruct v0.1 and v0.2 as they were first published, and those trained from them.
    Variant{"mistral-v1",
            {"'[INST] '", "' [/INST]'", "message['content'] + eos_token"},
            {"<<SYS>>", "system_message"},
            "is an early one of Mistral's, without a place for a system text and without the "
            "spaces that this form has before [INST] and before an answer"},
};

// Whether all `marks` of a form or a variant stand in a text, and none of `never`.
bool HasMarks(std::string_view jinja, const auto& of) {
  const auto has = [&](std::string_view mark) { return jinja.find(mark) != jinja.npos; };
  const auto barred = [&](std::string_view mark) { return !mark.empty() && has(mark); };
  return std::all_of(of.marks.begin(), of.marks.end(), has) &&
         std::none_of(of.never.begin(), of.never.end(), barred);
}

const Variant* VariantOf(std::string_view jinja) {
  for (const Variant& variant : kVariants) {
    if (HasMarks(jinja, variant)) return &variant;
  }
  return nullptr;
}

const ChatTemplateForm* FormOfMarks(std::string_view jinja) {
  const ChatTemplateForm* found = nullptr;
  for (const ChatTemplateForm& form : kChatTemplates) {
    if (!form.marks[0].empty() && HasMarks(jinja, form)) found = &form;
  }
  return found;
}

}  // namespace

const ChatTemplateForm* RecognizeTemplate(std::string_view jinja) {
  if (const ChatTemplateForm* form = FormOfJinjaTemplate(jinja)) return form;
  const Variant* variant = VariantOf(jinja);
  return variant == nullptr ? FormOfMarks(jinja) : FindChatTemplate(variant->form);
}

std::string_view TemplateNote(std::string_view jinja) {
  if (FormOfJinjaTemplate(jinja) != nullptr) return "";
  const Variant* variant = VariantOf(jinja);
  return variant == nullptr ? "" : variant->note;
}

const ChatTemplateForm* FolderTemplate(const std::string& folder) {
  const std::string jinja = FolderJinja(folder);
  return jinja.empty() ? nullptr : RecognizeTemplate(jinja);
}

std::string FolderJinja(const std::string& folder) {
  const std::filesystem::path where(folder);
  FileText jinja = ReadRegularFile((where / "chat_template.jinja").string(), kLongest);
  if (jinja.problem.empty()) return std::move(jinja.text);
  for (const char* name :
       {"tokenizer_config.json", "chat_template.json", "processor_config.json"}) {
    const std::string path = (where / name).string();
    const FileText file = ReadRegularFile(path, kLongest);
    if (!file.problem.empty()) continue;
    try {
      std::string text = TemplateOf(ParseJson(file.text, path));
      if (!text.empty()) return text;
    } catch (const DataError&) {  // its reader says what is wrong with it
    }
  }
  return "";
}

}  // namespace equipoise
