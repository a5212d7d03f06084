#pragma once

#include <optional>
#include <string>

#include "models/spec/model_config.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// The chat template that a model's folder says it was trained with.
struct OwnTemplate {
  std::string name;  // of data.template; maybe one that config.json names and is none of them
  std::string note;  // what the folder's writes otherwise than that form; empty: nothing is known
};

// As a Jinja template says that a run has written, as its config.json says, as the text of its own
// Jinja template tells, or its family's; absent: none of these. Reads the folder's files.
std::optional<OwnTemplate> OwnTemplateOf(const ModelConfig& model, const std::string& folder);

// Whether the folder's own files have a chat template, or name one.
bool NamesTemplate(const ModelConfig& model, const std::string& folder);

// What data.template: auto stands for.
struct ChosenTemplate {
  std::string name;    // of data.template
  std::string system;  // of data.system, where the folder's files say it; empty: the template's own
  std::string warning;  // why it may be another than the folder's own; empty: nothing is known
};

// OwnTemplateOf(), or kCommonTemplate where that is of no known form or absent.
ChosenTemplate ChooseTemplate(const ModelConfig& model, const std::string& folder);

// Whether who reads the folder alone asks as the run of `data` trains: in the same template, with
// the same system text where a record has none, and the folder's text is known to render that and
// does not only look like it. True for `plain`, in which no question is answered.
bool AnswersAsFolder(const DataConfig& data, const ModelConfig& model, const std::string& folder);

// Sets data.template where it is `auto`, and data.system where it is empty then: to those of the
// folder model.hf or model.llm, kCommonTemplate where there is none. Logs a warning of
// ChooseTemplate(). Throws ConfigError where that is `plain`, in which no question is answered, and
// what ModelConfigOf() throws.
void ResolveTemplate(RunConfig* config);

// A warning where data.template is another form than that of the folder model.hf; empty: it is the
// same, the folder tells none, or it is `plain`, which no model answers in.
std::string OtherTemplate(const RunConfig& config, const ModelConfig& model);

}  // namespace equipoise
