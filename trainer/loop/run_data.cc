#include "trainer/loop/run_data.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "models/spec/layer_spec.h"
#include "models/spec/sliding_window.h"
#include "trainer/settings/group_settings.h"
#include "trainer/settings/odd_settings.h"
#include "trainer/settings/own_template.h"
#include "trainer/settings/vocabulary.h"

namespace equipoise {
namespace {

void CheckModel(const RunConfig& config, const ModelConfig& model) {
  for (const std::string& line : IgnoredSettings(model)) spdlog::warn("{}", line);
  for (const std::string& line : OddSettings(config, ImageSpecOf(model))) {
    spdlog::warn("{}", line);
  }
  if (const std::string line = OtherTemplate(config, model); !line.empty())
    spdlog::warn("{}", line);
  if (config.data.max_tokens > model.text.max_position_embeddings) {
    spdlog::warn(
        "data.max_tokens: {} is beyond the model's max_position_embeddings {}; positions behind "
        "that are new to a pretrained model",
        config.data.max_tokens, model.text.max_position_embeddings);
  }
  RequireWithinWindow(model.text, config.data.max_tokens, "data.max_tokens");
  CheckModules(model, config.model.freeze, "model.freeze");
  const std::vector<LayerSpec> specs = LayerSpecs(model);
  if (std::all_of(specs.begin(), specs.end(),
                  [&](const LayerSpec& spec) { return !IsTrained(spec, config.model.freeze); })) {
    throw ConfigError("model.freeze: nothing is left to train; take a module out of the list");
  }
  spdlog::info("conversations become tokens by data.template: {}", config.data.chat_template);
}

OpenedData OpenTraining(RunContext& context) {
  const auto opening = context.activity.During("opening the data");
  return {context.config, context.config.data.train, context.world()};
}

}  // namespace

RunData::RunData(RunContext& context)
    : context_(context),
      requested_(context.config.balance),
      opened_(OpenTraining(context)),
      costs_(CostsOfIndex(opened_.index, context.config)),
      left_out_(index().size() - index().CountDefects()[0]),
      bad_(index().CountBad()) {
  CheckModel(context.config, model_config());
  WarnOfLeftOut(opened_.tokenizer);
  RequirePicturesToTrain(context.config, opened_);
  SetSteps();
}

void RunData::SetSteps() {
  RunConfig& config = context_.config;
  TrainSection& train = config.train;
  if (train.epochs == 0 && config.checkpoint.epochs == 0 && config.eval.epochs == 0) return;
  const int64_t packs = MakePacker(/*data_ranks=*/1).Summarize(0).groups;
  train.steps = StepsOf(train, packs, taken_);
  epoch_steps_ = static_cast<double>(packs) / static_cast<double>(train.global_batch);
}

StepInterval RunData::SavesEvery() const {
  const CheckpointSection& checkpoint = context_.config.checkpoint;
  return {checkpoint.every, checkpoint.epochs, epoch_steps_};
}

StepInterval RunData::MeasuresEvery() const {
  const EvalSection& eval = context_.config.eval;
  return {eval.every, eval.epochs, epoch_steps_};
}

StepInterval RunData::AnswersEvery() const {
  const EvalSection& eval = context_.config.eval;
  return {eval.answer_every, eval.epochs, epoch_steps_};
}

void RunData::FixLimits(const PlanPrediction& prediction, const StepsTaken& taken) {
  taken_ = taken;
  if (prediction.tokens > 0) limits_ = {prediction.tiles, prediction.tokens};
  if (prediction.global_batch > 0) {
    context_.config.balance.tiles = prediction.tiles;
    context_.config.balance.tokens = prediction.tokens;
    context_.config.train.global_batch = prediction.global_batch;
  }
  SetSteps();
}

EpochPacker RunData::MakePacker(int data_ranks) const {
  const RunConfig& config = context_.config;
  EpochPacker::Options options;
  const ImageSpec images = ImageSpecOf(model_config());
  options.groups = GroupOptionsOf(config, FlopsOfLoad(model_config(), config.model.freeze), images);
  if (limits_.tokens > 0) options.groups.limits = LimitsOf(limits_.tiles, limits_.tokens, images);
  options.window = config.balance.window;
  options.data_ranks = data_ranks;
  options.loss = config.train.loss;
  options.repeat = SourceRepeats(config.data.train);
  return EpochPacker(&index(), std::move(options));
}

void RunData::LogBalance(int data_ranks, int64_t epoch) const {
  const auto forming = context_.activity.During("forming the micro-batches of the epoch");
  const EpochPacker packer = MakePacker(data_ranks);
  const GroupOptions& groups = packer.groups();
  const EpochSummary ours = packer.Summarize(epoch);
  const EpochSummary random =
      packer.Summarize(epoch, RandomBaseline(groups, ours.samples_per_group()));
  const std::string limits = DescribeLimits(groups, requested_, context_.config.data.max_tokens);
  spdlog::info("{}", DescribeMicroBatches(ours, groups, limits));
  spdlog::info("{}", DescribeBalance(ours, random, groups, data_ranks));
  if (ours.oversize > 0) {
    spdlog::warn(
        "{} samples an epoch are beyond balance.tiles {} or balance.tokens {} and left out",
        ours.oversize, groups.limit_units(), groups.limits.tokens);
  }
}

}  // namespace equipoise
