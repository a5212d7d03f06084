// A variant of Optimus' bubble scheduler (arXiv 2408.03505, section 4.2) without its enumeration of
// partitions. The timetable of the language model is fixed but for one number, the lead by which it
// begins after the encoder. For a given lead, forwards are laid in the order of their dependency
// points F_i: each goes to the encoder pipeline that is ready first (or that has most room left for
// backwards), first fit in its ranks' bubbles; a micro-batch that is late refuses the lead. Then
// backwards, in the order of B_i, first fit, on the pipeline of their forwards. Bisection finds a
// short lead; what is left after the last op of the language model is the trail.
//
// Invariant: passes of a stage ascend by micro-batch, and none begins before what it takes is
// there. So the lists by start time run without deadlock, no later than planned where links are
// free. With n pieces of a micro-batch on a pipeline, M of these and m pipelines, a lead costs
// O(M m n) searches for a bubble, O(M n) where micro-batches are equal, as they are when a
// planner asks for memory: a pipeline that has not taken the last one is as early as it was for it.

#include "parallel/schedule/bubble_search.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace equipoise {
namespace {

constexpr double kRounding = 1e-9;   // of a step
constexpr double kPrecision = 2e-4;  // of the lead, as a share of the step

}  // namespace

EncoderTimes::EncoderTimes(const Schedule& schedule, const EncoderPipelines& encoder,
                           const SimulationCosts& costs)
    : stages_(encoder.count(schedule.graph.num_ranks()) * encoder.depth()) {
  for (int i = 0; i < schedule.micro_batches; ++i) {
    const auto last = static_cast<std::ptrdiff_t>(times_.size()) - stages_;
    for (int stage = 0; stage < stages_; ++stage) {
      StageTimes& each = times_.emplace_back();
      if (!encoder.Runs(i)) continue;
      const int next = schedule.graph.stages[stage].next.front();
      each = {SecondsOfOp(costs, {OpKind::kEncoderForward, stage, i}),
              SecondsOfOp(costs, {OpKind::kEncoderBackward, stage, i}),
              TransferSeconds(schedule, costs, {OpKind::kSend, stage, i, next}),
              TransferSeconds(schedule, costs, {OpKind::kSend, next, i, stage})};
      shortest_s_ = std::min(shortest_s_, each.forward_s);
      if (!encoder.HasBackward(stage % encoder.depth())) continue;
      shortest_s_ = std::min(shortest_s_, each.backward_s);
    }
    const bool repeats =
        last >= 0 && std::equal(times_.begin() + last, times_.begin() + last + stages_,
                                times_.begin() + last + stages_);
    if (repeats) times_.resize(times_.size() - static_cast<size_t>(stages_));
    columns_.push_back(static_cast<int>(times_.size()) - stages_);
  }
}

BubbleSearch::BubbleSearch(const Schedule& schedule, const EncoderPipelines& encoder,
                           const EncoderTimes& times, const Timetable& timetable, bool ends_alone)
    : schedule_(schedule),
      encoder_(encoder),
      times_(times),
      timetable_(timetable),
      pipelines_(encoder.count(schedule.graph.num_ranks())),
      slack_s_(kRounding * timetable.step_s),
      passes_(static_cast<size_t>(pipelines_)) {
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    idle_.emplace_back(timetable.start_s[r], timetable.end_s[r], /*lead=*/0, ends_alone,
                       times.shortest_s() - 2 * slack_s_);
  }
  for (int pipeline = 0; pipeline < pipelines_; ++pipeline) {
    double tail = timetable.step_s;
    for (int place = 0; place < encoder.depth(); place += encoder.pieces) {
      const int rank = schedule.graph.stages[encoder.StageOf(pipeline, place)].rank;
      if (timetable.end_s[rank].empty()) continue;
      tail = std::min(tail, timetable.step_s - timetable.end_s[rank].back());
    }
    tail_s_.push_back(tail);
  }
  for (int stage = 0; stage < times.num_stages(); ++stage) {
    const StageNode& node = schedule.graph.stages[stage];
    free_of_.push_back(node.rank * encoder.lanes + std::max(node.lane, 0));
  }
  int last = -1;
  for (int i = 0; i < schedule.micro_batches; ++i) {
    repeats_.push_back(encoder.Runs(i) && last >= 0 && times.Same(last, i));
    if (encoder.Runs(i)) last = i;
  }
}

BubblePlan BubbleSearch::Run(OwnerRule rule) {
  BubblePlan best, plan;
  best.step_s = std::numeric_limits<double>::infinity();
  const auto late = [&](double lead_s) {
    const double late_s = Try(lead_s, rule, best.step_s, plan);
    if (late_s <= 0 && plan.step_s < best.step_s) std::swap(best, plan);
    return late_s;
  };
  // Each lead that is too short says by how much at least; doubling ends what would creep.
  double low = 0, high = 0, step = kPrecision * timetable_.step_s;
  for (double late_s = late(0); late_s > 0; late_s = late(high), step *= 2) {
    low = high;
    high += std::max(late_s, step);
  }
  while (high - low > kPrecision * timetable_.step_s) {
    const double middle = (low + high) / 2;
    (late(middle) > 0 ? low : high) = middle;
  }
  return best;
}

double BubbleSearch::Try(double lead_s, OwnerRule rule, double limit_s, BubblePlan& plan) {
  const size_t ranks = schedule_.ranks.size();
  plan.lead_s = lead_s;
  plan.step_s = timetable_.step_s + lead_s;
  plan.owners.assign(schedule_.micro_batches, -1);
  plan.ranks.resize(ranks);
  for (std::vector<BubblePlan::Pass>& passes : plan.ranks) passes.clear();
  if (free_.empty()) {
    for (const FreeTime& idle : idle_) free_.insert(free_.end(), encoder_.lanes, idle);
  }
  for (size_t i = 0; i < free_.size(); ++i) {
    free_[i].SetLater(idle_[i / static_cast<size_t>(encoder_.lanes)], lead_s);
  }
  last_s_.assign(times_.num_stages(), 0);
  arrival_s_.assign(schedule_.micro_batches, 0);
  owned_s_.assign(pipelines_, 0);
  known_s_.assign(pipelines_, std::nullopt);
  for (int i = 0; i < schedule_.micro_batches; ++i) {
    const double late_s = encoder_.Runs(i) ? PlaceForward(i, rule, plan) : 0;
    if (late_s > 0) return late_s;
  }
  last_s_.assign(times_.num_stages(), 0);
  for (int i = 0; i < schedule_.micro_batches && plan.step_s < limit_s; ++i) {
    if (encoder_.Runs(i)) PlaceBackward(i, plan);
  }
  return 0;
}

double BubbleSearch::PlaceForward(int micro_batch, OwnerRule rule, BubblePlan& plan) {
  const double needed = timetable_.forward_s[micro_batch] + plan.lead_s;
  std::pair<double, double> best_key;
  double late_s = std::numeric_limits<double>::infinity();
  int& owner = plan.owners[micro_batch];
  if (!repeats_[micro_batch]) known_s_.assign(pipelines_, std::nullopt);
  for (int pipeline = 0; pipeline < pipelines_; ++pipeline) {
    const double arrival = Arrival(pipeline, micro_batch);
    const int last = encoder_.StageOf(pipeline, encoder_.depth() - 1);
    if (arrival > needed + std::min(slack_s_, times_.Forward(last, micro_batch) / 2)) {
      late_s = std::min(late_s, arrival - needed);
      continue;
    }
    const double load = owned_s_[pipeline] - tail_s_[pipeline];
    const std::pair<double, double> key =
        rule == OwnerRule::kEarliest ? std::pair(arrival, load) : std::pair(load, arrival);
    if (owner >= 0 && key >= best_key) continue;
    owner = pipeline;
    best_key = key;
    arrival_s_[micro_batch] = arrival;
  }
  if (owner < 0) return late_s;
  for (int place = 0; place < encoder_.depth(); ++place) {
    if (!encoder_.HasBackward(place)) continue;
    owned_s_[owner] +=
        times_.Backward(encoder_.StageOf(owner, place), micro_batch) / encoder_.ranks;
  }
  // Those of an equal micro-batch before it, where its arrival was known.
  std::vector<BubblePlan::Pass>& passes = passes_[static_cast<size_t>(owner)];
  for (BubblePlan::Pass& pass : passes) pass.op.micro_batch = micro_batch;
  Commit(passes, /*forward=*/true, plan);
  known_s_[owner] = std::nullopt;
  return 0;
}

double BubbleSearch::Arrival(int pipeline, int micro_batch) {
  std::optional<double>& known = known_s_[pipeline];
  std::vector<BubblePlan::Pass>& passes = passes_[static_cast<size_t>(pipeline)];
  if (!known) known = Walk(pipeline, micro_batch, /*forward=*/true, 0, passes);
  return *known;
}

void BubbleSearch::PlaceBackward(int micro_batch, BubblePlan& plan) {
  const double made = timetable_.backward_s[micro_batch] + plan.lead_s;
  const int owner = plan.owners[micro_batch];
  std::vector<BubblePlan::Pass>& passes = passes_[static_cast<size_t>(owner)];
  Walk(owner, micro_batch, /*forward=*/false, std::max(made, arrival_s_[micro_batch]), passes);
  Commit(passes, /*forward=*/false, plan);
}

double BubbleSearch::Walk(int pipeline, int micro_batch, bool forward, double earliest_s,
                          std::vector<BubblePlan::Pass>& passes) {
  passes.clear();
  double ready = earliest_s;
  for (int step = 0; step < encoder_.depth(); ++step) {
    const int place = forward ? step : encoder_.depth() - 1 - step;
    if (!forward && !encoder_.HasBackward(place)) break;  // nor has any in front
    const int stage = encoder_.StageOf(pipeline, place);
    if (!forward) ready += times_.ToStage(stage, micro_batch);
    const Op op{forward ? OpKind::kEncoderForward : OpKind::kEncoderBackward, stage, micro_batch};
    const double seconds = SecondsOf(stage, micro_batch, forward);
    const FreeTime& free = free_[free_of_[stage]];
    const double start = free.Find(std::max(ready, last_s_[stage]), seconds, slack_s_);
    passes.push_back({op, start});
    ready = start + seconds + (forward ? times_.ToNext(stage, micro_batch) : 0);
  }
  return ready;
}

void BubbleSearch::Commit(const std::vector<BubblePlan::Pass>& passes, bool forward,
                          BubblePlan& plan) {
  for (const BubblePlan::Pass& pass : passes) {
    const int stage = pass.op.stage, free = free_of_[stage];
    const double seconds = SecondsOf(stage, pass.op.micro_batch, forward);
    free_[free].Take(pass.start_s, seconds);
    last_s_[stage] = pass.start_s + seconds;
    plan.ranks[free / encoder_.lanes].push_back(pass);
    if (!forward) plan.step_s = std::max(plan.step_s, pass.start_s + seconds);
  }
}

}  // namespace equipoise
