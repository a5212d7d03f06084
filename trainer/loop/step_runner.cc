#include "trainer/loop/step_runner.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "data/loading/agree_on_faults.h"
#include "parallel/comm/already_reported_error.h"
#include "parallel/streams.h"
#include "parallel/zero/grad_norm.h"
#include "trainer/loop/out_of_memory.h"
#include "trainer/settings/lr_schedule.h"

namespace equipoise {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Identity of a step's batches, which must be the same on every rank before the step begins.
StepIdentity IdentityOf(const StepBatches& batches, int64_t number) {
  StableHash hash;
  hash.Add(static_cast<uint64_t>(number));
  for (const Pack& pack : batches.packs) {
    for (const int64_t sample : pack.samples) hash.Add(static_cast<uint64_t>(sample));
    hash.Add(static_cast<uint64_t>(pack.row_tokens));
    hash.Add(static_cast<uint64_t>(pack.pictures.patches));
  }
  const auto items = [&batches, number] {
    std::vector<PlanItem> all = {{"step", fmt::format("{}", number)}};
    for (size_t i = 0; i < batches.packs.size(); ++i) {
      const Pack& pack = batches.packs[i];
      all.push_back({fmt::format("pack {}", i),
                     fmt::format("{} tokens, {} patches, samples {}", pack.row_tokens,
                                 pack.pictures.patches, fmt::join(pack.samples, " "))});
    }
    return all;
  };
  return {hash.value(), items};
}

// What dropout of a pack is drawn from in a step: the same on every mesh.
uint64_t NoiseOf(int64_t seed, int64_t step, const MicroBatch& batch) {
  StableHash hash;
  hash.Add(static_cast<uint64_t>(seed));
  hash.Add(static_cast<uint64_t>(step));
  for (const int64_t sample : batch.samples) hash.Add(static_cast<uint64_t>(sample));
  return hash.value() | 1;  // 0 is no dropout
}

// With a GPU, one thread of the rank's computes and the others have nothing to do. A rank of a CPU
// computes with all of them.
int64_t LoaderThreadsOn(at::Device device) {
  constexpr int64_t kMostThreads = 16;
  return device.is_cpu() ? 1 : std::clamp<int64_t>(at::get_num_threads() - 1, 1, kMostThreads);
}

}  // namespace

StepRunner::StepRunner(RunContext& context, const RunData& data, Replica& replica)
    : context_(context), data_(data), replica_(replica) {}

// The planner may have found an encoder that is inline to be faster.
bool StepRunner::EncodesAhead() const {
  return context_.config.parallel.prefetch && FillsBubbles(replica_.plan().encoder);
}

bool StepRunner::RunsAhead() const { return EncodesAhead() || replica_.model().delays_updates(); }

void StepRunner::Start(const DataPosition& position) {
  const auto forming = context_.activity.During("forming the micro-batches of the epoch");
  const RunConfig& config = context_.config;
  const int data_ranks = replica_.data_ranks();
  const bool ahead = EncodesAhead();
  replica_.model().DropAhead();
  next_.reset();
  packs_.clear();
  feed_ = std::make_unique<StepFeed>(
      &data_.dataset(), data_.MakePacker(data_ranks), position,
      StepFeed::Options{
          replica_.data_rank(), data_ranks,
          config.data.LoaderThreads(LoaderThreadsOn(context_.device())), config.data.prefetch,
          context_.device(),
          [this, ahead, before = StepLoads()](const std::vector<Pack>& packs) mutable {
            std::vector<LayerLoad> loads;
            for (const Pack& pack : packs) loads.push_back(pack.load());
            const ParallelModel& model = replica_.model();
            return ahead ? model.NeedsPictures(loads, before) : model.NeedsPictures(loads);
          }});
}

StepResult StepRunner::Run(int64_t number) {
  const Clock::time_point start = Clock::now();
  const std::string running_name = fmt::format("step {}", number);
  const auto running = context_.activity.During(running_name);
  const FeedStep step = next_ ? std::move(*next_) : feed_->NextStep();
  next_.reset();
  const bool last = number >= context_.config.train.steps;
  if (RunsAhead() && !last) next_ = feed_->NextStep();
  const StepBatches& batches = step.plan;
  StepResult result;
  if (ended_) result.pause_s = std::chrono::duration<double>(start - *ended_).count();
  result.after = step.after;
  std::vector<LayerLoad> useful;  // of all data ranks' micro-batches
  for (const Pack& pack : batches.packs) {
    result.tokens += pack.tokens;
    result.samples += static_cast<int64_t>(pack.samples.size());
    for (const int64_t sample : pack.samples) result.images += data_.index()[sample].images;
    useful.push_back(pack.useful());
  }
  result.balance = MeasureStep(batches, feed_->groups(), replica_.data_ranks());
  const Sums sums = AllReduce(RunMicroBatches(batches, number, result));

  result.lr = LearningRate(context_.config.train, number - 1);
  result.bad_samples = static_cast<int64_t>(sums.bad_samples);
  result.data_wait_s = sums.data_wait_s;
  result.stop = sums.stop_requests > 0;
  if (replica_.plan().pipeline() > 1) result.bubble_share = 1 - sums.busy_s / sums.span_s;
  const StepForecast& forecast = replica_.forecast();
  if (forecast.knows_speed()) result.predicted_step_s = sums.predicted_s;
  const double weight = std::accumulate(sums.weights.begin(), sums.weights.end(), 0.0);
  const bool missed = sums.bad_before > 0 && HasMissed(number, result);
  if (weight > 0 && !missed) {
    // Where pictures did not decode, the loss has fewer targets than planned, of all islands and of
    // this one.
    const auto planned_share = [&sums](double planned, double present) {
      return sums.bad_samples > 0 && present > 0 ? planned / present : 1.0;
    };
    const double mine = planned_share(IslandWeight(batches),
                                      sums.weights[static_cast<size_t>(context_.islands.number())]);
    const double scale = replica_.scaler.scale();
    if (replica_.scaler.on()) result.loss_scale = scale;
    if (scale != 1.0) replica_.optimizer().ScaleGradients(1 / scale);
    if (mine != 1.0) replica_.optimizer().ScaleGradients(mine);
    result.loss = sums.loss * planned_share(batches.weight, weight);
    RunWithinMemory(replica_, context_.device(), fmt::format("step {}, its update", number),
                    replica_.LoadsOf(batches.packs),
                    [&] { UpdateWeights(batches, number, result); });
  } else if (!missed) {
    spdlog::warn("step {}: none of its samples can be used; skipped", number);
  }
  unread_.clear();
  result.step_s = result.times.measured.step_s = SecondsSince(start);
  if (forecast.knows_speed())
    result.mfu = forecast.Mfu(useful, result.step_s, context_.world().size());
  ended_ = Clock::now();
  context_.recorder.Add(kStepLane, running_name, start, *ended_);
  return result;
}

// Forward and backward of this rank's stages on the packs of its data rank.
StepRunner::Sums StepRunner::RunMicroBatches(const StepBatches& batches, int64_t number,
                                             StepResult& result) {
  ParallelModel& model = replica_.model();
  Sums sums;
  ModelPart::Pass pass;
  const StepLoads loads{replica_.LoadsOf(batches.packs),
                        {},
                        next_ ? replica_.LoadsOf(next_->plan.packs) : std::vector<LayerLoad>()};
  const size_t count = loads.now.size();
  result.loads = loads.All();
  pass.loads = loads.now;
  pass.next_loads = loads.next;
  const double scale = replica_.scaler.scale();
  const double weight = IslandWeight(batches);
  pass.loss_scale = scale / weight;
  if (next_) pass.next_loss_scale = scale / IslandWeight(next_->plan);
  pass.batch = [&](int i) -> const MicroBatch& {
    while (packs_.size() <= static_cast<size_t>(i)) LoadPack(number, sums);
    return packs_[static_cast<size_t>(i)].batch;
  };
  pass.settle = [&](int i) { return Settle(batches, i); };
  pass.release = [&](int i) {
    MicroBatch& batch = packs_[static_cast<size_t>(i)].batch;
    if (static_cast<size_t>(i) < count) batch = MicroBatch();
    batch.pixel_values.reset();
  };
  RunWithinMemory(replica_, context_.device(), fmt::format("step {}", number), loads.now,
                  [&] { model.RunStep(std::move(pass), IdentityOf(batches, number)); });
  result.times.measured.data_wait_s = sums.data_wait_s;  // within the passes
  while (packs_.size() < count) LoadPack(number, sums);  // unasked for
  sums.weights.resize(static_cast<size_t>(context_.islands.count()));
  for (size_t i = 0; i < count; ++i) {
    const std::vector<BadSample>& bad = packs_[i].bad;
    unread_.insert(unread_.end(), bad.begin(), bad.end());
    if (!model.part().has_loss()) sums.bad_before += static_cast<double>(bad.size());
    if (!model.reports_batches()) continue;
    sums.bad_samples += static_cast<double>(bad.size());
    sums.weights[static_cast<size_t>(context_.islands.number())] += packs_[i].weight;
    result.bad.insert(result.bad.end(), bad.begin(), bad.end());
  }
  DropPacks();
  // Each island's loss is divided by the weight of its own targets.
  const double of_all = context_.islands.count() == 1 ? 1 : weight / batches.weight;
  if (model.reports_loss()) sums.loss = model.part().loss() / scale * of_all;
  result.taken = model.taken();
  MeasurePasses(sums, result);
  return sums;
}

double StepRunner::IslandWeight(const StepBatches& batches) const {
  if (context_.islands.count() == 1) return batches.weight;
  const int of_island = replica_.plan().data();
  double weight = 0;
  for (size_t i = 0; i < batches.packs.size(); ++i) {
    const int data_rank = static_cast<int>(i) % replica_.data_ranks();
    if (data_rank / of_island == context_.islands.number()) weight += batches.packs[i].weight;
  }
  return weight;
}

void StepRunner::LoadPack(int64_t number, Sums& sums) {
  const Clock::time_point wait = Clock::now();
  const auto place = static_cast<int64_t>(packs_.size());
  packs_.push_back(feed_->LoadPack());
  MicroBatch& batch = packs_.back().batch;
  const int64_t step = place < replica_.accumulation() ? number : number + 1;
  batch.noise = NoiseOf(context_.config.train.seed, step, batch);
  sums.data_wait_s += SecondsSince(wait);
  context_.recorder.Add(kDataLane, fmt::format("wait {}", place), wait, Clock::now());
}

bool StepRunner::Settle(const StepBatches& batches, int place) {
  const bool ahead = place >= replica_.accumulation();
  const StepBatches& of = ahead ? next_->plan : batches;
  const int64_t number = ahead ? place - replica_.accumulation() : place;
  const int64_t pack = replica_.data_rank() + number * replica_.data_ranks();
  return AgreeOnFaults(data_.dataset(), of.packs[static_cast<size_t>(pack)],
                       replica_.model().groups().same_batches(),
                       packs_[static_cast<size_t>(place)]);
}

void StepRunner::DropPacks() {
  packs_.erase(packs_.begin(), packs_.begin() + static_cast<ptrdiff_t>(replica_.accumulation()));
  if (replica_.model().delays_updates()) return;  // their backwards are still to come
  for (LoadedPack& pack : packs_) pack.batch.pixel_values.reset();
}

void StepRunner::MeasurePasses(Sums& sums, StepResult& result) const {
  ParallelModel& model = replica_.model();
  sums.busy_s = model.busy_s() / context_.world().size();
  sums.span_s = model.step_s();
  RankSeconds& measured = result.times.measured;
  measured.passes_s = model.step_s();
  measured.compute_s = model.busy_s() - measured.data_wait_s;
  result.times.predicted = replica_.forecast().Seconds(
      model.schedule(), result.loads, replica_.pipeline_rank(), result.taken, model.lane());
  sums.predicted_s = result.times.predicted.step_s;
  for (const GradientReducer::Span& span : model.reductions())
    context_.recorder.Add("communication", span.name, span.start, span.end);
}

StepRunner::Sums StepRunner::AllReduce(const Sums& sums) const {
  if (context_.stop.Ending()) throw AlreadyReportedError("mpirun is ending the job");
  const auto islands = static_cast<int64_t>(sums.weights.size());
  at::Tensor added = at::empty({5 + islands}, at::kDouble), longest = at::empty({3}, at::kDouble);
  auto* v = added.data_ptr<double>();
  v[0] = sums.loss, v[1] = sums.bad_samples, v[3] = sums.busy_s;
  v[2] = context_.stop.Requested() ? 1 : 0;
  v[4] = sums.bad_before;
  std::copy(sums.weights.begin(), sums.weights.end(), v + 5);
  auto* most = longest.data_ptr<double>();
  most[0] = sums.data_wait_s, most[1] = sums.span_s, most[2] = sums.predicted_s;
  Work first = context_.world().AllReduce(added, ReduceOp::kSum);
  Work second = context_.world().AllReduce(longest, ReduceOp::kMax);
  first.Wait();
  second.Wait();
  const std::vector<double> weights(v + 5, v + 5 + islands);
  return {v[0], weights, v[1], v[4], v[2], v[3], most[0], most[1], most[2]};
}

// Whether ranks before the loss could not read pictures that those of the loss could: the loss is
// that of black ones, and the step is skipped.
bool StepRunner::HasMissed(int64_t number, StepResult& result) const {
  const std::vector<BadSample> missed =
      MissedByLoss(unread_, replica_.model().part().has_loss(), context_.world());
  if (missed.empty()) return false;
  spdlog::warn("step {}: skipped: of its samples {} could not be read where they are encoded",
               number, missed.size());
  result.bad_samples += std::ssize(missed);
  if (context_.rank() == 0) result.bad.insert(result.bad.end(), missed.begin(), missed.end());
  return true;
}

// Whether the gradients have overflowed for the scale's sake, which is lower then. It is none of
// the loss, which is computed without it: one that is not finite is the weights' or the data's.
bool StepRunner::LowerScale(int64_t number, const StepResult& result) {
  LossScaler& scaler = replica_.scaler;
  if (!std::isfinite(*result.loss) || std::isfinite(*result.grad_norm) || !scaler.CanLower())
    return false;
  scaler.Lower();
  spdlog::info(
      "step {}: gradients overflow with a loss scale of {:.0f}: skipped; {:.0f} from now on",
      number, *result.loss_scale, scaler.scale());
  return true;
}

void StepRunner::UpdateWeights(const StepBatches& batches, int64_t number, StepResult& result) {
  const TimelineRecorder::Scope scope(context_.recorder, "compute", "OPT");
  ZeroOptimizer& optimizer = replica_.optimizer();
  NonFiniteGuard& guard = replica_.guard;
  const double own_norm = optimizer.GradientNorm();
  const double norm = context_.islands.Mean(own_norm);
  result.grad_norm = norm;
  if (LowerScale(number, result)) return guard.SawFiniteLoss();
  const LossScaler& scaler = replica_.scaler;
  NonFiniteGuard::Step step{number, *result.loss, norm, result.lr, {}};
  if (scaler.on() && !scaler.CanLower()) step.least_scale = scaler.scale();
  if (!std::isfinite(step.loss) || !std::isfinite(norm)) step.samples = SampleNames(batches);
  if (guard.MayTry(step)) {
    const double factor = ClipFactor(own_norm, context_.config.train.clip);
    const bool taken = optimizer.Step(result.lr, factor);
    if (!taken) step.samples = SampleNames(batches);
    guard.Tried(step, taken);
    // The step's time is that of its work. Weights that ranks gather arrive beside the next
    // forward.
    WaitForComputeStream(context_.device());
  }
  result.updated = guard.warning().empty();
  if (result.updated && replica_.scaler.StepTaken())
    spdlog::info("step {}: loss scale {:.0f} from now on", number, replica_.scaler.scale());
  if (!result.updated && !guard.exhausted()) spdlog::warn("{}", guard.warning());
}

std::vector<std::string> StepRunner::SampleNames(const StepBatches& batches) const {
  std::vector<std::string> names;
  for (const Pack& pack : batches.packs) {
    for (const int64_t sample : pack.samples) {
      const BadSample at = data_.dataset().Locate(sample, "", "");
      names.push_back(fmt::format("{}:{}", at.file, at.line));
    }
  }
  return names;
}

}  // namespace equipoise
