#include "trainer/settings/own_template.h"

#include <fmt/format.h>

#include "data/settings/chat_templates.h"
#include "data/text/folder_template.h"
#include "models/families/families.h"

namespace equipoise {

std::optional<OwnTemplate> OwnTemplateOf(const ModelConfig& model, const std::string& folder) {
  const FolderSettings settings = FolderSettingsOf(model, folder);
  if (settings.chat_template) return OwnTemplate{*settings.chat_template, ""};
  const std::string jinja = FolderJinja(folder);
  if (const ChatTemplateForm* own = RecognizeTemplate(jinja))
    return OwnTemplate{std::string(own->name), std::string(TemplateNote(jinja))};
  if (settings.default_template) return OwnTemplate{*settings.default_template, ""};
  return std::nullopt;
}

bool NamesTemplate(const ModelConfig& model, const std::string& folder) {
  return FolderSettingsOf(model, folder).chat_template || !FolderJinja(folder).empty();
}

std::string OtherTemplate(const RunConfig& config, const ModelConfig& model) {
  const std::string& name = config.data.chat_template;
  if (config.model.hf.empty() || name == "plain") return "";
  const std::optional<OwnTemplate> own = OwnTemplateOf(model, config.model.hf);
  if (!own || own->name == name || FindChatTemplate(own->name) == nullptr) return "";
  return fmt::format(
      "data.template: {}: {} has another of its own, and answers best in that; set data.template: "
      "{}, unless this run is to teach it a new form",
      name, config.model.hf, own->name);
}

}  // namespace equipoise
