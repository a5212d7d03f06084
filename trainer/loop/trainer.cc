#include "trainer/loop/trainer.h"

#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/shown_text.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/common/logging.h"
#include "trainer/device/memory_stats.h"
#include "trainer/loop/memory_probe.h"
#include "trainer/loop/run_summary.h"
#include "trainer/outputs/progress.h"
#include "trainer/settings/diloco.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kReturnMemoryEvery = 4;  // steps

std::unique_ptr<RunFolder> OpenFolder(RunContext& context, const TrainOptions& options,
                                      MpiEnvironment& mpi) {
  const std::string& dir = context.config.run.dir;
  if (options.resume == Resume::kNone) RefuseCheckpoints(dir);
  if (options.resume == Resume::kFrom) RefuseOthersCheckpoint(dir, options.resume_from);
  auto folder = std::make_unique<RunFolder>(dir, context.world());
  SetUpLogging({mpi.rank(), mpi.size(), folder->LogPath(mpi.rank()), false});
  if (mpi.rank() == 0) context.stop.WatchFile(folder->dir());
  return folder;
}

// The plan to train with; the limits of its micro-batches become those of the run.
TrainingPlan ChoosePlan(RunContext& context, RunInputs& inputs) {
  RunData& data = inputs.data;
  const auto searching = context.activity.During("searching the plan");
  const PlanTarget target = {.ranks = context.world().size(),
                             .precision = context.setup.precision,
                             .threads = at::get_num_threads()};
  TrainingPlan planned = PlanTraining(context.config, data.model_config(), data.costs(), target);
  data.FixLimits(planned.prediction, inputs.checkpoints.taken());
  return planned;
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, MpiEnvironment& mpi)
    : context_(options.config, mpi),
      folder_(OpenFolder(context_, options, mpi)),
      inputs_(context_, options),
      planned_(ChoosePlan(context_, inputs_)),
      replica_(context_, inputs_.data.model_config(), planned_.plan, inputs_.data.limits()),
      state_(inputs_.checkpoints.Restore(replica_)),
      first_step_(state_.step),
      outputs_(context_, *folder_, inputs_.data, planned_, state_),
      trace_(context_),
      kernels_(context_, *folder_, first_step_),
      steps_(context_, inputs_.data, replica_),
      watch_(context_, replica_.whole_mesh(), replica_.forecast()) {
  KeepFreedMemory();
  if (first_step_ == 0) ProbeMemory(context_, inputs_.data, replica_);
  if (context_.rank() == 0) inputs_.data.LogBalance(replica_.data_ranks(), state_.position.epoch);
  steps_.Start(state_.position);
}

ExitCode Trainer::Run() {
  const RunConfig& config = context_.config;
  const Clock::time_point start = Clock::now();
  Evaluator& evaluator = inputs_.evaluator;
  std::optional<std::vector<AnsweredSource>> answers;  // after the last step
  if (first_step_ == 0) outputs_.WriteAnswersBefore(evaluator.AnswerFirst(replica_));
  if (state_.owes_answers) {
    answers = GiveOwedAnswers();
    if (state_.owes_answers) return Stop();
  }
  trace_.Start(first_step_);  // behind the answers, which are passes of the model too
  if (first_step_ < config.train.steps) {
    const double epoch = inputs_.data.epoch_steps();
    spdlog::info("training: steps {} to {}{}", first_step_ + 1, config.train.steps,
                 epoch > 0 ? fmt::format(", {:.1f} of them a pass over the data", epoch) : "");
  }
  double saving_s = 0;  // since the last step
  while (state_.step < config.train.steps) {
    if (state_.step % kReturnMemoryEvery == 0) ReturnScatteredMemory();
    kernels_.BeforeStep(state_.step + 1);
    StepResult step = steps_.Run(state_.step + 1);
    kernels_.AfterStep(state_.step + 1, step.stop);
    if (step.pause_s) step.checkpoint_s = std::exchange(saving_s, 0);
    if (replica_.guard.exhausted()) inputs_.checkpoints.EndForSkippedSteps(state_, replica_.guard);
    Advance(step);
    trace_.AddPredicted(replica_, step);
    watch_.Add(step.times);
    const bool last = state_.step == config.train.steps;
    if (replica_.outer() != nullptr && (last || state_.step % config.train.diloco.every == 0))
      step.outer_s = replica_.TakeOuterStep();
    answers = Measure(step, last);
    // While steps are skipped, weights are those already saved, or unsound.
    const bool sound = state_.non_finite_in_a_row == 0;
    const bool best = sound && inputs_.best.Improves(step, state_);
    outputs_.Report(state_, step, trace_);
    outputs_.RefuseTooManyBad(state_);
    const bool due = sound && (best || Due(inputs_.data.SavesEvery()));
    if (last || step.stop || due) {
      const Clock::time_point saves = Clock::now();
      Save();
      saving_s = std::chrono::duration<double>(Clock::now() - saves).count();
    }
    if (step.stop && !last) return Stop();
  }
  if (!answers) answers = evaluator.Answer(replica_);
  Finish(answers.value_or(std::vector<AnsweredSource>()));
  spdlog::info("done: {} steps in {}", state_.step - first_step_,
               DurationText(std::chrono::duration<double>(Clock::now() - start).count()));
  if (answers) return ExitCode::kDone;
  SaveStart();
  spdlog::info("stopped on request after training; the same command{} answers the questions",
               Again());
  return ExitCode::kStopped;
}

std::optional<std::vector<AnsweredSource>> Trainer::Measure(StepResult& step, bool last) {
  const RunData& data = inputs_.data;
  Evaluator& evaluator = inputs_.evaluator;
  if (evaluator.has_held_out() && (last || Due(data.MeasuresEvery())))
    step.eval_loss = evaluator.HeldOutLoss(replica_);
  const StepInterval answered = data.AnswersEvery();
  if (!answered.on() || !(last || Due(answered))) return std::nullopt;
  return AnswerAfter(step);
}

std::optional<std::vector<AnsweredSource>> Trainer::AnswerAfter(StepResult& step) {
  auto answers = inputs_.evaluator.Answer(replica_);
  state_.owes_answers = !answers;
  step.stop = step.stop || !answers;  // the next step's weights would be others
  const std::vector<std::string> names = AnswerSetNames(context_.config.eval.answers);
  for (size_t i = 0; answers && i < answers->size(); ++i)
    step.answers.push_back({names[i], (*answers)[i].Mean()});
  return answers;
}

std::optional<std::vector<AnsweredSource>> Trainer::GiveOwedAnswers() {
  if (!inputs_.data.AnswersEvery().on()) {
    state_.owes_answers = false;
    return std::nullopt;
  }
  spdlog::info("answering the questions after step {}, before which the run was stopped",
               state_.step);
  StepResult step;
  auto answers = AnswerAfter(step);
  if (!answers) return answers;
  if (state_.non_finite_in_a_row == 0) inputs_.best.Improves(step, state_);
  outputs_.ReportAnswers(state_, step);
  Save();
  return answers;
}

void Trainer::Save() {
  folder_->RequireHeld(context_.world());
  inputs_.checkpoints.Save(state_, replica_);
}

void Trainer::SaveStart() {
  const Checkpointer& checkpoints = inputs_.checkpoints;
  const bool named = !checkpoints.chooses() && !checkpoints.start().empty();
  if (named && state_.step == first_step_) Save();
}

const char* Trainer::Again() const {
  return inputs_.checkpoints.chooses() ? "" : " with --resume auto";
}

ExitCode Trainer::Stop() {
  SaveStart();
  Finish({});
  spdlog::info("stopped on request after step {}; the same command{} goes on from there",
               state_.step, Again());
  return ExitCode::kStopped;
}

void Trainer::Advance(const StepResult& step) {
  ++state_.step;
  if (step.updated) ++state_.optimizer_step;
  state_.position = step.after;
  state_.tokens += step.tokens;
  state_.samples += step.samples;
  state_.images += step.images;
  state_.packs += context_.config.train.global_batch;
  state_.skipped_samples += step.bad_samples;
  state_.non_finite_in_a_row = replica_.guard.in_a_row();
  state_.non_finite_tried = replica_.guard.tried();
  state_.loss_scale = std::nullopt;
  if (replica_.scaler.on()) state_.loss_scale = replica_.scaler.state();
}

void Trainer::Finish(const std::vector<AnsweredSource>& answers) {
  RunSummary run = SummarizeRun(context_, inputs_.data, replica_, planned_.prediction, state_);
  run.first_step = first_step_;
  if (replica_.forecast().knows_speed()) run.predicted_step_s = planned_.prediction.step_s;
  outputs_.WriteReport(run, answers);
  if (context_.rank() == 0) {
    spdlog::info(
        "last checkpoint: {}; `equipoise export {} --out FOLDER` makes a Hugging Face folder of it",
        inputs_.checkpoints.newest(), ShellWord(folder_->dir()));
    if (IsWithinRound(context_.config.train, state_.step))
      spdlog::info("within a round of train.diloco that is of the weights with which it began");
  }
  context_.stop.RemoveFile();
}

}  // namespace equipoise
