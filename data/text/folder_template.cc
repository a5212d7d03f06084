#include "data/text/folder_template.h"

#include <algorithm>
#include <filesystem>

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

}  // namespace

const ChatTemplateForm* RecognizeTemplate(std::string_view jinja) {
  const ChatTemplateForm* found = FormOfJinjaTemplate(jinja);
  if (found != nullptr) return found;
  const auto has = [&](std::string_view mark) { return jinja.find(mark) != jinja.npos; };
  for (const ChatTemplateForm& form : kChatTemplates) {
    const bool fits = !form.marks[0].empty() &&
                      std::all_of(form.marks.begin(), form.marks.end(), has) &&
                      (form.never.empty() || !has(form.never));
    if (fits) found = &form;
  }
  return found;
}

const ChatTemplateForm* FolderTemplate(const std::string& folder) {
  const std::filesystem::path where(folder);
  const FileText jinja = ReadRegularFile((where / "chat_template.jinja").string(), kLongest);
  if (jinja.problem.empty()) return RecognizeTemplate(jinja.text);
  for (const char* name :
       {"tokenizer_config.json", "chat_template.json", "processor_config.json"}) {
    const std::string path = (where / name).string();
    const FileText file = ReadRegularFile(path, kLongest);
    if (!file.problem.empty()) continue;
    try {
      const std::string text = TemplateOf(ParseJson(file.text, path));
      if (!text.empty()) return RecognizeTemplate(text);
    } catch (const DataError&) {  // its reader says what is wrong with it
    }
  }
  return nullptr;
}

}  // namespace equipoise
