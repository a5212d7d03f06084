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

// Published templates that write what their forms do, and more where functions are described. The
// rest of what marks tell may have other line breaks, or no end behind an answer.
struct Published {
  std::string_view form;
  std::array<std::string_view, 2> marks;  // that all stand in it
};

constexpr std::string_view kFunctions = "# Tools";

constexpr std::array kPublished = {
    Published{"qwen2-vl", {kQwen2System}},         // Qwen2, Qwen2-VL, Qwen2.5-VL
    Published{"qwen2_5", {kQwen25System}},         // Qwen2.5
    Published{"qwen3", {kFunctions, "</think>"}},  // Qwen3, Qwen3-VL's Thinking models
    Published{"chatml", {kFunctions}},             // Qwen3's without thoughts, Qwen3-VL
    Published{"chatml", {"<IMG_CONTEXT>"}},        // InternVL in Transformers' form
};

// Whether a system text of its own stands in a template of ChatML: what follows the role is neither
// the end of a string nor of a line of the template.
bool HasSystemText(std::string_view jinja) {
  constexpr std::string_view kRole = "<|im_start|>system\\n";
  for (size_t at = jinja.find(kRole); at != jinja.npos; at = jinja.find(kRole, at + 1)) {
    const std::string_view rest = jinja.substr(at + kRole.size());
    if (!rest.empty() && rest.front() != '\'' && rest.front() != '"') return true;
  }
  return false;
}

// Whether config.json has an encoder of pictures.
bool HasEncoder(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  const FileText file = ReadRegularFile(path, kLongest);
  if (!file.problem.empty()) return false;
  try {
    const Json json = ParseJson(file.text, path);
    return json.is_object() && json.contains("vision_config");
  } catch (const DataError&) {  // its reader says what is wrong with it
    return false;
  }
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

bool RendersItsForm(std::string_view jinja) {
  if (FormOfJinjaTemplate(jinja) != nullptr) return true;
  const ChatTemplateForm* form = RecognizeTemplate(jinja);
  if (form == nullptr || (form->system.empty() && HasSystemText(jinja))) return false;
  return std::any_of(kPublished.begin(), kPublished.end(), [&](const Published& published) {
    return published.form == form->name &&
           std::all_of(published.marks.begin(), published.marks.end(),
                       [&](std::string_view mark) { return jinja.find(mark) != jinja.npos; });
  });
}

const ChatTemplateForm* FolderTemplate(const std::string& folder) {
  const std::string jinja = FolderJinja(folder);
  return jinja.empty() ? nullptr : RecognizeTemplate(jinja);
}

std::string FolderJinja(const std::string& folder) {
  const std::filesystem::path where(folder);
  FileText jinja = ReadRegularFile((where / "chat_template.jinja").string(), kLongest);
  if (jinja.problem.empty()) return std::move(jinja.text);
  using Names = std::array<const char*, 3>;
  const Names names =
      HasEncoder(folder)
          ? Names{"processor_config.json", "chat_template.json", "tokenizer_config.json"}
          : Names{"tokenizer_config.json", "chat_template.json", "processor_config.json"};
  for (const char* name : names) {
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
