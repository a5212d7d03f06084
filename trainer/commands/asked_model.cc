#include "trainer/commands/asked_model.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "configs/yaml/config_json.h"
#include "configs/yaml/overrides.h"
#include "configs/yaml/yaml_reader.h"
#include "data/settings/chat_templates.h"
#include "data/text/folder_template.h"
#include "models/families/families.h"
#include "models/families/preprocessor.h"
#include "parallel/schedule/plan_hash.h"
#include "trainer/answers/kept_answers.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/checkpoint/checkpoint_adapters.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/common/agreement.h"
#include "trainer/planner/make_plan.h"
#include "trainer/run/same_model.h"
#include "trainer/settings/data_options.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/offload.h"
#include "trainer/settings/own_template.h"
#include "trainer/settings/vocabulary.h"

namespace equipoise {
namespace {

// The model, which takes pictures as the folder of `adapters` says, where there are some.
ModelConfig ReadAskedModel(const ModelSource& source, const std::string& adapters) {
  ModelConfig model = ReadModelConfig(source.folder);
  if (!adapters.empty() && model.has_vision) TakePreprocessors(adapters, &model);
  return model;
}

// Applies the settings that a Hugging Face folder specifies.
void ApplySettings(const ModelConfig& model, const std::string& folder, DataConfig& data) {
  const FolderSettings settings = FolderSettingsOf(model, folder);
  data.tiles.min = settings.min_tiles.value_or(data.tiles.min);
  data.tiles.max = settings.max_tiles.value_or(data.tiles.max);
  data.tiles.thumbnail = settings.thumbnail.value_or(data.tiles.thumbnail);
}

// Applies its chat template where the settings leave that open.
void ApplyTemplate(const ModelConfig& model, const std::string& folder, DataConfig& data) {
  if (data.chat_template != kAutoTemplate) return;
  const ChosenTemplate chosen = ChooseTemplate(model, folder);
  data.chat_template = chosen.name;
  if (data.system.empty()) data.system = chosen.system;
  if (!chosen.warning.empty()) spdlog::warn("{}", chosen.warning);
}

RunConfig ReadSettings(const ModelSource& source, const ModelConfig& model,
                       const std::string& adapters, const std::vector<std::string>& set) {
  const std::vector<Override> overrides = ParseOverrides(set);
  RunConfig config;
  if (source.run_config.empty()) {
    const bool pictures = !adapters.empty() && ReadPreprocessor(adapters).is_object();
    ApplySettings(model, pictures ? adapters : source.folder, config.data);
    ReadConfigText("--set", "{}", overrides, config);
    const bool jinja = !adapters.empty() && !FolderJinja(adapters).empty();
    ApplyTemplate(model, jinja ? adapters : source.folder, config.data);
    return config;
  }
  ReadConfig(source.run_config, overrides, config);
  ApplyTemplate(model, source.folder, config.data);
  RunConfig here;
  ReadConfigText("--set", "{}", overrides, here);
  config.parallel = here.parallel;
  config.balance = here.balance;
  config.cluster = here.cluster;
  config.train.threads = here.train.threads;
  config.train.offload = here.train.offload;  // nothing is trained
  config.train.master = here.train.master;
  return config;
}

// Each rank has found the model by itself: a run that saves meanwhile has a newer checkpoint, and a
// folder on the disk of another machine may be another.
void RequireSameSource(Communicator& world, const ModelSource& source, RunConfig config) {
  if (source.checkpoint.empty()) {
    config.model.hf = source.folder;
    config.model.init = "pretrained";
    return RequireSameModel(world, config, /*weights=*/true);
  }
  RequireSameCheckpoint(world, source.checkpoint);
}

}  // namespace

AskedModel::AskedModel(const ModelSource& source, const std::string& adapters,
                       const std::vector<std::string>& set, MpiEnvironment& mpi)
    : config_(ReadAskedModel(source, adapters)) {
  for (const std::string& folder : {source.folder, source.checkpoint, adapters}) {
    if (!folder.empty()) folders_.push_back(folder);
  }
  RunConfig config = ReadSettings(source, config_, adapters, set);
  if (!adapters.empty()) config.model.adapter.init = adapters;
  TakeAdaptersOf(source.checkpoint, config_, &config.model);
  SetAdapters(config.model, &config_);
  config.model.freeze.clear();  // it says above which components the run gave no adapters
  UsePixels(config.data, &config_);
  const bool by_layer = OffloadedOf(config.train.offload) >= ShardedState::kGradients;
  if (!config.parallel.zero && !by_layer) config.parallel.zero = 0;  // nothing is trained
  setup_ = std::make_unique<RunSetup>(SetUpRun(config, mpi));
  RequireSameSource(*setup_->world, source, config);
  data_ = config.data;
  settings_ = fmt::format("{} {} {}", ConfigToJson(data_).dump(), ConfigToJson(config.model).dump(),
                          ToString(setup_->precision));
  tokenizer_ = std::make_unique<Tokenizer>(
      Tokenizer::Read(source.folder, /*added=*/{}, config_.text.vocab_size));
  template_ = std::make_unique<ChatTemplate>(data_.chat_template, data_.system, tokenizer_.get(),
                                             config_.image_token_id, ChatOptionsOf(data_));
  RequireEqual(*setup_->world, "the tokenizer or its template", template_->fingerprint());
  if (config_.image_token_id < 0) config_.image_token_id = template_->image_token();
  CheckVocabulary(source.folder, config_, *tokenizer_, *template_);
  WarnOfLeftOut(*tokenizer_);
  recorder_ = std::make_unique<TimelineRecorder>(mpi.rank());
  ParallelModel::Options options = ModelOptionsOf(config, *setup_);
  options.part.inference = true;
  model_ = std::make_unique<ParallelModel>(config_, MakePlan(config, config_, mpi.size()), options,
                                           *setup_->world, *recorder_);
  Load(source, config);
  generation_ = ReadGenerationSettings(source.folder);
  responder_ =
      std::make_unique<Responder>(&config_, tokenizer_.get(), template_.get(), &data_, generation_);
}

void AskedModel::Load(const ModelSource& source, const RunConfig& config) {
  FlatParameters& parameters = model_->parameters();
  ModelSection section = config.model;
  if (source.checkpoint.empty()) {
    section.hf = source.folder;
    section.init = "pretrained";
  }
  if (!source.checkpoint.empty() && config_.lora.on()) CheckBase(config, source.checkpoint);
  if (source.checkpoint.empty() || config_.lora.on()) {
    parameters.SetWeights([&](const std::vector<Parameter*>& some) {
      SetFirstWeights(some, config_, section, static_cast<uint64_t>(config.train.seed));
    });
  }
  if (!source.checkpoint.empty()) LoadCheckpointWeights(parameters, source.checkpoint);
}

uint64_t AskedModel::Hash() const {
  StableHash hash;
  hash.Add(settings_);
  for (const std::string& folder : folders_) hash.Add(FolderStamp(folder));
  return hash.value();
}

std::vector<GivenAnswer> AskedModel::Answer(const QuestionList& questions,
                                            const BatchLimits& limits,
                                            const GenerateOptions& options,
                                            const AnswerKeeping& keeping) {
  AnswerSession session(*model_, *responder_, *setup_->world);
  // Never stopped, but asked: ranks whose answers are done meet those that still decode now and
  // then, rather than wait for the round's end longer than a wait may last.
  const auto stop = [] { return false; };
  return session.Answer(questions, limits, options, stop, keeping).value();
}

}  // namespace equipoise
