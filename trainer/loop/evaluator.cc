#include "trainer/loop/evaluator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "data/loading/agree_on_faults.h"
#include "models/spec/sliding_window.h"
#include "parallel/comm/values.h"

namespace equipoise {
namespace {

// Weighted loss and weight, summed over ranks.
std::optional<double> MeanLoss(Communicator& world, double loss, double weight) {
  const std::vector<double> sums =
      AllReduceValues(world, std::vector<double>{loss, weight}, ReduceOp::kSum);
  if (sums[1] == 0) return std::nullopt;
  return sums[0] / sums[1];
}

// Those that cannot be used are no part of what is measured.
void WarnOfBad(const OpenedData& data, const std::string& sources, const char* flag) {
  const int64_t bad = data.index.CountBad();
  if (bad == 0) return;
  spdlog::warn(
      "{}: {} of {} records cannot be used and are left out ({}); `equipoise data CONFIG "
      "check{}` names them",
      sources, bad, data.index.size(), data.index.DescribeDefects(), flag);
}

}  // namespace

Evaluator::Evaluator(RunContext& context) : context_(context) {
  const auto opening = context.activity.During("opening the data of eval");
  const RunConfig& config = context.config;
  if (!config.data.eval.empty()) {
    RunConfig by_token = config;  // the mean over tokens, whatever train.loss weighs
    by_token.train.loss = LossWeight::kToken;
    held_out_.emplace(by_token, config.data.eval, context.world(),
                      OpenDataOptions{.flag = " --eval"});
    WarnOfBad(*held_out_, "data.eval", " --eval");
  } else if (config.eval.every > 0) {
    spdlog::warn("eval.every: there is no held-out data to measure; set data.eval");
  }
  if (config.eval.answers.empty() && config.eval.answer_every > 0)
    spdlog::warn("eval.answer_every: there are no questions; set eval.answers");
  // As `generate` finds it in the run's folder, to which both were copied.
  if (!config.eval.answers.empty()) {
    for (const std::string& folder : {config.data.tokenizer, config.model.llm, config.model.hf}) {
      if (generation_.source.empty() && !folder.empty())
        generation_ = ReadGenerationSettings(folder);
    }
  }
  for (const SourceConfig& source : config.eval.answers) {
    sources_.push_back(std::make_unique<OpenedData>(config, std::vector{source}, context.world(),
                                                    OpenDataOptions{.flag = " --answers"}));
    WarnOfBad(*sources_.back(), "eval.answers: " + source.annotations, " --answers");
  }
}

std::optional<double> Evaluator::HeldOutLoss(Replica& replica) {
  const auto measuring = context_.activity.During("measuring the held-out loss");
  const RunConfig& config = context_.config;
  ParallelModel& model = replica.model();
  const EpochSamples samples(&held_out_->index, SourceRepeats(config.data.eval),
                             static_cast<uint64_t>(config.train.seed), /*epoch=*/0);
  const std::vector<Pack> packs = PackInOrder(held_out_->index, config.data.max_tokens,
                                              config.eval.samples, LossWeight::kToken, &samples);
  double weight = 0;
  std::vector<BadSample> bad;
  const auto pack_of = [&](int i) -> const Pack& {
    const int pack = replica.data_rank() + i * replica.data_ranks();
    return packs[static_cast<size_t>(pack)];
  };
  std::map<int, LoadedPack> loaded;
  ModelPart::Pass pass;
  pass.loads = replica.LoadsOf(packs);
  pass.batch = [&](int i) -> const MicroBatch& {
    if (const auto found = loaded.find(i); found != loaded.end()) return found->second.batch;
    LoadedPack& here = loaded[i] =
        held_out_->dataset.Load(pack_of(i), model.part().needs_pictures());
    return here.batch;
  };
  pass.settle = [&](int i) {
    return AgreeOnFaults(held_out_->dataset, pack_of(i), model.groups().same_batches(), loaded[i]);
  };
  pass.release = [&](int i) {
    weight += loaded[i].weight;
    bad.insert(bad.end(), loaded[i].bad.begin(), loaded[i].bad.end());
    loaded.erase(i);
  };
  model.Evaluate(std::move(pass));
  if (const auto missed = MissedByLoss(bad, model.part().has_loss(), context_.world());
      !missed.empty()) {
    spdlog::warn(
        "data.eval: {} could not be read where it is encoded ({} samples); no held-out loss",
        missed[0].file, missed.size());
    return std::nullopt;
  }
  // A data rank beyond the packs has run none; its last loss is that of a training step.
  const bool ran = weight > 0;
  const std::optional<double> mean =
      MeanLoss(context_.world(), ran && model.reports_loss() ? model.part().loss() : 0,
               ran && model.reports_batches() ? weight : 0);
  if (!mean) spdlog::warn("data.eval: none of its samples can be used; no held-out loss");
  return mean;
}

int64_t Evaluator::asked() const {
  const int64_t asked = context_.config.eval.answer_samples;
  return asked > 0 ? asked : std::numeric_limits<int64_t>::max();
}

bool Evaluator::HasChoice(size_t source) const {
  const OpenedData& data = *sources_.at(source);
  return equipoise::HasChoice(data.dataset, AnswerableSamples(data.index, asked()));
}

std::optional<std::vector<AnsweredSource>> Evaluator::Answer(Replica& replica) const {
  RequireWithinWindow(replica.config());
  return AnswerSources(replica, asked(), "");
}

void Evaluator::RequireWithinWindow(const ModelConfig& model) const {
  if (model.text.sliding_window == 0) return;
  const RunConfig& config = context_.config;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const OpenedData& data = *sources_[i];
    const Responder responder(&model, &data.tokenizer, &data.chat_template, &config.data,
                              generation_);
    for (const int64_t sample : AnswerableSamples(data.index, asked())) {
      const AskedQuestion asked = AskSample(responder, data.dataset, sample, /*decode=*/false);
      if (!asked.prompt) continue;
      equipoise::RequireWithinWindow(
          model.text, std::ssize(asked.prompt->ids) + config.eval.answer_tokens - 1,
          fmt::format("{}: record {} with eval.answer_tokens: {} for its answer",
                      config.eval.answers[i].annotations, sample + 1, config.eval.answer_tokens));
    }
  }
}

std::vector<AnsweredSource> Evaluator::AnswerFirst(Replica& replica) const {
  RequireWithinWindow(replica.config());
  return AnswerSources(replica, std::min(asked(), kShownAnswers), " before training")
      .value_or(std::vector<AnsweredSource>());
}

std::optional<std::vector<AnsweredSource>> Evaluator::AnswerSources(Replica& replica, int64_t most,
                                                                    std::string_view when) const {
  std::vector<AnsweredSource> results;
  if (sources_.empty()) return results;
  const auto answering = context_.activity.During("answering the questions of eval.answers");
  const RunConfig& config = context_.config;
  GenerateOptions options;
  options.max_new_tokens = config.eval.answer_tokens;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const OpenedData& data = *sources_[i];
    const Responder responder(&replica.config(), &data.tokenizer, &data.chat_template, &config.data,
                              generation_);
    AnswerSession session(replica.model(), responder, context_.world(),
                          {context_.islands.count(), context_.islands.number()});
    Questions questions{data.dataset, AnswerableSamples(data.index, most), {}};
    questions.limits.length = config.data.max_tokens;
    auto answers = AnswerSamples(session, responder, questions, options,
                                 [this] { return context_.stop.AgreeToStop(context_.world()); });
    if (!answers) return std::nullopt;
    AnsweredSource& result = results.emplace_back();
    result.source = config.eval.answers[i];
    result.answers = std::move(*answers);
    const double share = result.Mean().exact;
    spdlog::info(
        "{}: {} of {} answers exact ({:.1f} %), ANLS {:.3f}{}{}", result.source.annotations,
        result.exact(), result.answers.size(), 100 * share, result.Mean().anls, when,
        result.cut() == 0 ? ""
                          : fmt::format("; {} as long as eval.answer_tokens allows", result.cut()));
    if (result.faults() > 0) {
      spdlog::warn("{}: {} questions count as wrong, because their pictures cannot be used",
                   result.source.annotations, result.faults());
    }
  }
  return results;
}

}  // namespace equipoise
