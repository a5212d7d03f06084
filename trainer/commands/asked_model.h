#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/settings/data_config.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer.h"
#include "models/spec/model_config.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/answers/answer.h"
#include "trainer/answers/generation_settings.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/run/parallel_model.h"
#include "trainer/run/set_up_run.h"
#include "trainer/settings/run_config.h"

namespace equipoise {

// A trained model on its ranks, and what makes prompts for it.
class AskedModel {
 public:
  // The model of `source`, over which the adapters of PEFT's folder `adapters` are put, unless
  // that is empty. Its settings are those of the run in which it was trained, or else of the
  // adapters' folder and of its own; `--set` overrides them, and alone says how the ranks share
  // the model. Collective. Throws ConfigError, DataError, RunError.
  AskedModel(const ModelSource& source, const std::string& adapters,
             const std::vector<std::string>& set, MpiEnvironment& mpi);

  Communicator& world() const { return *setup_->world; }
  const ModelConfig& config() const { return config_; }
  const DataConfig& data() const { return data_; }
  const GenerationSettings& generation() const { return generation_; }
  const Responder& responder() const { return *responder_; }

  // A hash of its folders, by the names, sizes and times of their files, of its settings and of its
  // precision. Throws RunError.
  uint64_t Hash() const;

  // As AnswerSession::Answer().
  std::vector<GivenAnswer> Answer(const QuestionList& questions, const BatchLimits& limits,
                                  const GenerateOptions& options,
                                  const AnswerKeeping& keeping = {});

 private:
  void Load(const ModelSource& source, const RunConfig& config);

  ModelConfig config_;
  DataConfig data_;
  GenerationSettings generation_;
  std::vector<std::string> folders_;  // that the model is read from
  std::string settings_;              // of data and model, and the precision
  std::unique_ptr<RunSetup> setup_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  std::unique_ptr<TimelineRecorder> recorder_;
  std::unique_ptr<ParallelModel> model_;
  std::unique_ptr<Responder> responder_;
};

}  // namespace equipoise
