#include "trainer/settings/own_template.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "configs/base/error.h"
#include "data/settings/chat_templates.h"
#include "data/text/folder_template.h"
#include "data/text/jinja_template.h"
#include "models/families/families.h"
#include "trainer/settings/model_section.h"

namespace equipoise {

std::optional<OwnTemplate> OwnTemplateOf(const ModelConfig& model, const std::string& folder) {
  const FolderSettings settings = FolderSettingsOf(model, folder);
  const std::string jinja = FolderJinja(folder);
  if (const ChatTemplateForm* written = FormOfJinjaTemplate(jinja))
    return OwnTemplate{std::string(written->name), ""};
  if (settings.chat_template) return OwnTemplate{*settings.chat_template, ""};
  if (const ChatTemplateForm* own = RecognizeTemplate(jinja))
    return OwnTemplate{std::string(own->name), std::string(TemplateNote(jinja))};
  if (settings.default_template) return OwnTemplate{*settings.default_template, ""};
  return std::nullopt;
}

bool NamesTemplate(const ModelConfig& model, const std::string& folder) {
  return FolderSettingsOf(model, folder).chat_template || !FolderJinja(folder).empty();
}

ChosenTemplate ChooseTemplate(const ModelConfig& model, const std::string& folder) {
  const std::string jinja = FolderJinja(folder);
  const std::optional<std::string> system = FolderSettingsOf(model, folder).system;
  ChosenTemplate chosen;
  chosen.name = kCommonTemplate;
  chosen.system = SystemOfJinjaTemplate(jinja).value_or(system.value_or(""));
  const std::optional<OwnTemplate> own = OwnTemplateOf(model, folder);
  if (own && FindChatTemplate(own->name) != nullptr) {
    chosen.name = own->name;
    if (!own->note.empty())
      chosen.warning =
          fmt::format("{}: data.template: {}: the folder's {}", folder, own->name, own->note);
  } else if (own) {
    chosen.warning = fmt::format(
        "{}: the template '{}' of config.json is unknown; data.template: {} is used, set another "
        "where the model was trained in one",
        folder, own->name, chosen.name);
  } else if (!jinja.empty()) {
    chosen.warning = fmt::format(
        "{}: its chat template is of no known form; data.template: {} is used, set another where "
        "the model was trained in one",
        folder, chosen.name);
  }
  return chosen;
}

bool AnswersAsFolder(const DataConfig& data, const ModelConfig& model, const std::string& folder) {
  if (data.chat_template == "plain") return true;
  const ChosenTemplate own = ChooseTemplate(model, folder);
  if (own.name != data.chat_template || own.system != data.system) return false;
  const std::string jinja = FolderJinja(folder);
  // OpenGVLab's code renders what config.json names.
  if (FormOfJinjaTemplate(jinja) != nullptr || FolderSettingsOf(model, folder).chat_template)
    return true;
  // None of LLaVA's is one that it was trained with; Qwen's in such a folder shows no picture.
  return !model.model_type.starts_with("llava") && RendersItsForm(jinja);
}

void ResolveTemplate(RunConfig* config) {
  std::string& name = config->data.chat_template;
  if (name != kAutoTemplate) return;
  name = kCommonTemplate;
  const ModelSection& section = config->model;
  const std::string& folder = section.hf.empty() ? section.llm : section.hf;
  if (folder.empty()) return;
  const ChosenTemplate chosen = ChooseTemplate(ModelConfigOf(section), folder);
  if (chosen.name == "plain") {
    throw ConfigError(fmt::format(
        "data.template: auto: {} was trained with plain, in which no question is answered; set the "
        "template that this run is to teach",
        folder));
  }
  name = chosen.name;
  if (config->data.system.empty()) config->data.system = chosen.system;
  if (!chosen.warning.empty()) spdlog::warn("{}", chosen.warning);
}

std::string OtherTemplate(const RunConfig& config, const ModelConfig& model) {
  const std::string& name = config.data.chat_template;
  if (config.model.hf.empty() || name == "plain") return "";
  const std::optional<OwnTemplate> own = OwnTemplateOf(model, config.model.hf);
  // Of plain the next stage is another form.
  if (!own || own->name == name || own->name == "plain") return "";
  const ChatTemplateForm* form = FindChatTemplate(own->name);
  // Thinking is on or off in one and the same template.
  const bool thinks = form != nullptr && form->thinking == Thinking::kOn;
  if (form == nullptr || (thinks && FindChatTemplate(name)->thinking == Thinking::kOff)) return "";
  return fmt::format(
      "data.template: {}: {} has another of its own, and answers best in that; set data.template: "
      "{}, unless this run is to teach it a new form",
      name, config.model.hf, own->name);
}

}  // namespace equipoise
