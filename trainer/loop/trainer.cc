#include "trainer/loop/trainer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <utility>

#include "parallel/device.h"
#include "parallel/zero/grad_norm.h"
#include "trainer/common/agreement.h"
#include "trainer/device/memory_stats.h"
#include "trainer/loop/trainer_parts.h"
#include "trainer/outputs/progress.h"
#include "trainer/planner/plan_run.h"
#include "trainer/settings/lr_schedule.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kReturnMemoryEvery = 4;  // steps

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What every rank must have planned alike before the step begins.
StepIdentity IdentityOf(const StepBatches& plan, int64_t step) {
  StableHash hash;
  hash.Add(static_cast<uint64_t>(step));
  for (const Pack& pack : plan.packs) {
    for (const int64_t sample : pack.samples) hash.Add(static_cast<uint64_t>(sample));
    hash.Add(static_cast<uint64_t>(pack.row_tokens));
    hash.Add(static_cast<uint64_t>(pack.tiles));
  }
  const auto items = [&plan, step] {
    std::vector<PlanItem> all = {{"step", std::to_string(step)}};
    for (size_t i = 0; i < plan.packs.size(); ++i) {
      const Pack& pack = plan.packs[i];
      std::string text = std::to_string(pack.row_tokens) + " tokens, " +
                         std::to_string(pack.tiles) + " tiles, samples";
      for (const int64_t sample : pack.samples) text += " " + std::to_string(sample);
      all.push_back({"pack " + std::to_string(i), text});
    }
    return all;
  };
  return {hash.value(), items};
}

}  // namespace

PlanReport PlanTrainer(const TrainOptions& options, MpiEnvironment& mpi) {
  TrainOptions checked = options;
  checked.dry_run = true;
  const TrainerParts parts(checked, mpi);
  return PlanRun(parts.config, {parts.world->size(), parts.setup.precision});
}

Trainer::Trainer(const TrainOptions& options, MpiEnvironment& mpi)
    : config_(options.config), parts_(std::make_unique<TrainerParts>(options, mpi)) {
  if (options.trial) return;
  state_ = parts_->Restore();
  if (config_.run.probe && state_.step == 0) parts_->ProbeMemory();
  parts_->StartFeed(state_);
}

Trainer::~Trainer() = default;

ExitCode Trainer::Run() {
  TrainerParts& p = *parts_;
  const Clock::time_point start = Clock::now();
  const int64_t first = state_.step;
  if (first == 0) p.AnswerQuestions(/*before_training=*/true);
  if (first < config_.train.steps)
    spdlog::info("training: steps {} to {}", first + 1, config_.train.steps);
  while (state_.step < config_.train.steps) {
    if (state_.step % kReturnMemoryEvery == 0) ReturnFreeMemory();
    StepResult result = RunStep();
    const bool last = state_.step == config_.train.steps;
    if (p.held_out != nullptr && (last || Due(config_.eval.every)))
      result.eval_loss = p.HeldOutLoss();
    p.Report(state_, result);
    p.RefuseTooManyBad(state_);
    // Weights that steps are being skipped with are those of the step before, or no good.
    const bool due = Due(config_.checkpoint.every) && state_.non_finite_in_a_row == 0;
    if (last || result.stop || due) p.Save(state_);
    if (result.stop && !last) {
      p.WriteAnswersAndReport(state_);
      p.stop.Honoured();
      spdlog::info("stopped on request after step {}; the same command goes on from there",
                   state_.step);
      return ExitCode::kStopped;
    }
  }
  const bool answered = p.AnswerQuestions(/*before_training=*/false);
  p.WriteAnswersAndReport(state_);
  p.stop.Honoured();
  spdlog::info("done: {} steps in {}", state_.step - first, DurationText(SecondsSince(start)));
  if (answered) return ExitCode::kDone;
  spdlog::info("stopped on request after training; the same command answers the questions");
  return ExitCode::kStopped;
}

void Trainer::UsePacks(const GroupLimits& limits, int64_t global_batch) {
  parts_->prediction.tiles = limits.tiles;
  parts_->prediction.tokens = limits.tokens;
  parts_->prediction.global_batch = global_batch;
  parts_->FixPackLimits();
}

std::vector<double> Trainer::TimeSteps(const ScoredPlan& plan, int warm_up, int timed) {
  TrainerParts& p = *parts_;
  std::vector<double> seconds;
  const auto run = [&] {
    p.UsePlan(plan.plan);
    p.TakeFirstWeights();
    p.optimizer->TakeMasters();
    state_ = {};
    p.StartFeed(state_);
    for (int step = 0; step < warm_up + timed; ++step) {
      const double step_s = RunStep().step_s;
      if (step >= warm_up) seconds.push_back(step_s);
    }
  };
  p.Release();
  p.RequireMemory(plan);
  if (p.world->size() == 1) {
    AgreeOrThrowRunError(*p.world, run);
  } else {
    run();
  }
  at::Tensor slowest = at::tensor(seconds, at::kDouble);
  p.world->AllReduce(slowest, ReduceOp::kMax).Wait();
  std::copy_n(slowest.data_ptr<double>(), seconds.size(), seconds.begin());
  return seconds;
}

Precision Trainer::precision() const { return parts_->setup.precision; }

bool Trainer::Due(int64_t every) const { return every > 0 && state_.step % every == 0; }

// One optimizer step: this rank's micro-batches, one reduction, one update.
StepResult Trainer::RunStep() {
  const Clock::time_point start = Clock::now();
  TrainerParts& p = *parts_;
  const auto activity = p.activity.During(fmt::format("step {}", state_.step + 1));
  const FeedStep work = p.feed->NextStep();
  StepResult result;
  for (const Pack& pack : work.plan.packs) {
    result.tokens += pack.tokens;
    result.samples += static_cast<int64_t>(pack.samples.size());
    for (const int64_t sample : pack.samples) result.images += p.data->index[sample].images;
  }
  result.balance = MeasureStep(work.plan, p.feed->groups(), p.plan.data);
  const double planned = work.plan.weight;
  const StepSums sums = p.AllReduceForward(RunMicroBatches(work.plan));

  result.lr = LearningRate(config_.train, state_.step);
  result.bad_samples = static_cast<int64_t>(sums.bad_samples);
  result.data_wait_s = sums.data_wait_s;
  if (p.plan.pipeline > 1) result.bubble_share = 1 - sums.busy_s / sums.span_s;
  if (p.forecast->knows_speed()) result.predicted_step_s = sums.predicted_s;
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
  RankTimes times = sums.times;
  times.measured.step_s = result.step_s;
  p.WatchDrift(times);
  if (p.forecast->knows_speed()) {
    std::vector<LayerLoad> all;
    all.reserve(work.plan.packs.size());
    for (const Pack& pack : work.plan.packs) all.push_back(pack.useful());
    result.mfu = p.forecast->Mfu(all, result.step_s);
  }
  return result;
}

// Forward and backward of this rank's stages on the packs of its data rank, in the order of the
// plan's schedule.
StepSums Trainer::RunMicroBatches(const StepBatches& plan) {
  TrainerParts& p = *parts_;
  StepSums sums;
  std::deque<LoadedPack> packs;
  const auto load = [&] {
    const Clock::time_point wait = Clock::now();
    packs.push_back(p.feed->LoadPack());
    sums.data_wait_s += SecondsSince(wait);
    p.recorder.Add("data", "wait " + std::to_string(packs.size() - 1), wait, Clock::now());
    if (!p.model->reports_loss()) return;
    sums.bad_samples += static_cast<double>(packs.back().bad.size());
    sums.weight += packs.back().weight;
    p.NoteBadSamples(packs.back(), state_.step + 1);
  };
  ModelPart::Pass pass;
  const std::vector<LayerLoad> loads = p.Loads(plan.packs);
  pass.loads = loads;
  pass.loss_scale = 1.0 / plan.weight;
  pass.batch = [&](int i) -> const MicroBatch& {
    while (packs.size() <= static_cast<size_t>(i)) load();
    return packs[static_cast<size_t>(i)].batch;
  };
  pass.release = [&](int i) { packs[static_cast<size_t>(i)].batch = MicroBatch(); };
  p.model->RunStep(std::move(pass), IdentityOf(plan, state_.step + 1));
  sums.times.measured.data_wait_s = sums.data_wait_s;                  // within the passes
  while (static_cast<int64_t>(packs.size()) < p.accumulation) load();  // that no stage asked for
  sums.busy_s = p.model->busy_s();
  sums.span_s = p.model->step_s();
  sums.times.measured.passes_s = sums.span_s;
  sums.times.measured.compute_s = sums.busy_s - sums.times.measured.data_wait_s;
  p.AddPredicted(loads);
  sums.times.predicted =
      p.forecast->Seconds(p.model->schedule(), loads, p.model->groups().at.pipeline);
  sums.predicted_s = sums.times.predicted.step_s;
  if (p.model->reports_loss()) sums.loss = p.model->part().loss();
  for (const GradientReducer::Span& span : p.model->reducer().spans()) {
    p.recorder.Add("communication", span.name, span.start, span.end);
  }
  return sums;
}

void Trainer::UpdateWeights(const StepBatches& plan, StepResult& result) {
  TrainerParts& p = *parts_;
  const TimelineRecorder::Scope scope(p.recorder, "compute", "OPT");
  const double norm = p.optimizer->GradientNorm();
  result.grad_norm = norm;
  NonFiniteGuard::Step step{state_.step + 1, *result.loss, norm, result.lr, {}};
  if (!std::isfinite(step.loss) || !std::isfinite(norm)) step.samples = p.SampleNames(plan);
  if (p.guard.MayTry(step)) {
    const double factor = ClipFactor(norm, config_.train.clip);
    if (factor != 1.0) p.optimizer->ScaleGradients(factor);
    const bool taken = p.optimizer->Step(result.lr);
    if (!taken) step.samples = p.SampleNames(plan);
    p.guard.Tried(step, taken);
    Synchronize(p.device);  // the step's time is that of its work
  }
  if (p.guard.exhausted()) p.EndForSkippedSteps(state_);
  if (p.guard.warning().empty()) {
    ++state_.optimizer_step;
  } else {
    spdlog::warn("{}", p.guard.warning());
  }
}

}  // namespace equipoise
