#include "trainer/trainer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "parallel/zero/grad_norm.h"
#include "trainer/lr_schedule.h"
#include "trainer/memory_stats.h"
#include "trainer/trainer_parts.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kReturnMemoryEvery = 4;  // steps

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, MpiEnvironment& mpi)
    : config_(options.config), parts_(std::make_unique<TrainerParts>(options, mpi)) {
  state_ = parts_->Restore(options);
  parts_->StartFeed(state_);
}

Trainer::~Trainer() = default;

ExitCode Trainer::Run() {
  TrainerParts& p = *parts_;
  if (state_.step == 0) p.AnswerQuestions(/*before_training=*/true);
  while (state_.step < config_.train.steps) {
    if (state_.step % kReturnMemoryEvery == 0) ReturnFreeMemory();
    StepResult result = RunStep();
    const bool last = state_.step == config_.train.steps;
    if (p.held_out != nullptr && (last || Due(config_.eval.every)))
      result.eval_loss = p.HeldOutLoss();
    p.Report(state_, result);
    p.RefuseTooManyBad(state_);
    if (last || result.stop || Due(config_.checkpoint.every)) p.Save(state_);
    if (result.stop && !last) {
      p.WriteAnswersAndReport(state_);
      p.stop.Honoured();
      spdlog::info("stopped on request after step {}; the same command goes on from there",
                   state_.step);
      return ExitCode::kStopped;
    }
  }
  p.AnswerQuestions(/*before_training=*/false);
  p.WriteAnswersAndReport(state_);
  p.stop.Honoured();
  return ExitCode::kDone;
}

bool Trainer::Due(int64_t every) const { return every > 0 && state_.step % every == 0; }

// One optimizer step: this rank's micro-batches, one reduction, one update.
StepResult Trainer::RunStep() {
  const Clock::time_point start = Clock::now();
  TrainerParts& p = *parts_;
  const StepWork work = p.feed->NextStep();
  StepResult result;
  for (const Pack& pack : work.plan.packs) {
    result.tokens += pack.tokens;
    result.samples += static_cast<int64_t>(pack.samples.size());
    for (const int64_t sample : pack.samples) result.images += p.data->index[sample].images;
  }
  const auto room = static_cast<int64_t>(work.plan.packs.size()) * config_.data.max_tokens;
  result.pad_ratio = 1 - static_cast<double>(result.tokens) / static_cast<double>(room);
  const double planned = work.plan.weight;
  const StepSums sums = p.SumOverRanks(RunMicroBatches(1.0 / planned));

  result.lr = LearningRate(config_.train, state_.step);
  result.bad_samples = static_cast<int64_t>(sums.bad_samples);
  result.data_wait_s = sums.data_wait_s;
  result.stop = sums.stop_requests > 0;
  if (sums.weight > 0) {
    // Pictures that did not decode: the loss has fewer targets than planned.
    const double planned_share = sums.bad_samples > 0 ? planned / sums.weight : 1.0;
    if (planned_share != 1.0) p.optimizer->ScaleGradients(planned_share);
    result.loss = sums.loss * planned_share;
    UpdateWeights(work.plan, result);
  } else {
    spdlog::warn("step {}: none of its samples can be used; skipped", state_.step + 1);
  }
  ++state_.step;
  state_.position = work.after;
  state_.tokens += result.tokens;
  state_.samples += result.samples;
  state_.images += result.images;
  state_.skipped_samples += result.bad_samples;
  state_.non_finite_in_a_row = p.guard.in_a_row();
  result.step_s = SecondsSince(start);
  return result;
}

// Forward and backward of this rank's packs; gradients of the last one are reduced as they come.
StepSums Trainer::RunMicroBatches(double loss_scale) {
  TrainerParts& p = *parts_;
  p.model.parameters->ZeroGradient();
  StepSums sums;
  for (int64_t m = 0; m < p.accumulation; ++m) {
    const Clock::time_point wait = Clock::now();
    const LoadedPack pack = p.feed->LoadPack();
    sums.data_wait_s += SecondsSince(wait);
    p.recorder.Add("data", "wait " + std::to_string(m), wait, Clock::now());
    sums.bad_samples += static_cast<double>(pack.bad.size());
    sums.weight += pack.weight;
    p.NoteBadSamples(pack, state_.step + 1);

    const int id = static_cast<int>(m);
    {
      const TimelineRecorder::Scope scope(p.recorder, "compute", "F" + std::to_string(m));
      const at::Tensor loss = p.model.stage->Forward(id, pack.batch, at::Tensor(), loss_scale);
      if (loss.defined()) sums.loss += loss.item<double>();
    }
    const TimelineRecorder::Scope scope(p.recorder, "compute", "B" + std::to_string(m));
    p.reduce_during_backward = m + 1 == p.accumulation;
    p.model.stage->Backward(id, at::Tensor());
  }
  p.reducer->Finish();
  p.reduce_during_backward = false;
  for (const GradientReducer::Span& span : p.reducer->spans()) {
    p.recorder.Add("communication", span.name, span.start, span.end);
  }
  return sums;
}

void Trainer::UpdateWeights(const StepPlan& plan, StepResult& result) {
  TrainerParts& p = *parts_;
  const TimelineRecorder::Scope scope(p.recorder, "compute", "OPT");
  const double norm = p.optimizer->GradientNorm();
  result.grad_norm = norm;
  NonFiniteGuard::Step step{state_.step + 1, *result.loss, norm, {}};
  if (!std::isfinite(step.loss) || !std::isfinite(norm)) step.samples = p.SampleNames(plan);
  if (!p.guard.MayTake(step)) {
    spdlog::warn("{}", p.guard.warning());
    return;
  }
  const double factor = ClipFactor(norm, config_.train.clip);
  if (factor != 1.0) p.optimizer->ScaleGradients(factor);
  p.optimizer->Step(result.lr);
  ++state_.optimizer_step;
}

}  // namespace equipoise
