#include "models/stages/plan_schedule.h"

#include <fmt/format.h>

#include <utility>

#include "configs/base/error.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/fill_bubbles.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/pipedream_2bw.h"
#include "parallel/schedule/prefetch.h"
#include "parallel/schedule/schedule_text.h"
#include "parallel/schedule/validate.h"

namespace equipoise {
namespace {

Schedule Filled(Schedule text, const StageLayout& stages, const std::vector<LayerLoad>& loads,
                const SimulationCosts& costs, EncoderPlacement placement) {
  text.work = stages.TextWork(loads);
  return FillBubbles(text, stages.Encoder(loads), costs, placement);
}

// What passes share out over the data ranks.
ShardedState SharedByPasses(const Plan& plan) {
  for (const ShardedState state : {ShardedState::kParameters, ShardedState::kGradients}) {
    if (plan.IsByLayer(state)) return state;
  }
  return ShardedState::kNone;
}

}  // namespace

std::vector<LayerLoad> StepLoads::All() const {
  std::vector<LayerLoad> all = now;
  all.insert(all.end(), next.begin(), next.end());
  return all;
}

PlanSchedule::PlanSchedule(const Plan& plan) : name_(plan.schedule) {
  if (!plan.schedule_text.empty()) in_file_ = ParseSchedule(plan.schedule_text, plan.schedule);
}

Schedule PlanSchedule::Build(const StageGraph& graph, int micro_batches) const {
  if (!in_file_) return BuildSchedule(name_, graph, micro_batches);
  Schedule schedule = *in_file_;
  if (schedule.micro_batches != micro_batches ||
      schedule.graph.num_stages() != graph.num_stages()) {
    throw ConfigError(
        fmt::format("{}: {} stages and {} micro-batches; this run has {} and {} a data rank; write "
                    "the file for "
                    "those",
                    name_, schedule.graph.num_stages(), schedule.micro_batches, graph.num_stages(),
                    micro_batches));
  }
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    const int there = schedule.graph.stages[s].rank, here = graph.stages[s].rank;
    if (there == here) continue;
    throw ConfigError(
        fmt::format("{}: stage {} on rank {}; this plan has it on rank {}", name_, s, there, here));
  }
  schedule.graph = graph;
  for (std::vector<Op>& ops : schedule.ranks) {
    std::erase_if(ops, [](const Op& op) { return !IsCompute(op.kind); });
    for (const Op& op : ops) {  // before anything looks it up
      if (op.stage < graph.num_stages() && op.micro_batch < micro_batches) continue;
      throw ConfigError(
          fmt::format("{}: there is no {}; the last stage is {}, the last micro-batch {}", name_,
                      ToString(op), graph.num_stages() - 1, micro_batches - 1));
    }
  }
  return schedule;
}

Schedule PlanSchedule::StepOps(const StageLayout& stages, const std::vector<LayerLoad>& loads,
                               const SimulationCosts& costs) const {
  const auto count = static_cast<int>(loads.size());
  if (FillsBubbles(stages.plan().encoder)) {
    return Filled(Build(stages.text_graph(), count), stages, loads, costs, stages.plan().encoder);
  }
  Schedule ops = Build(stages.graph(), count);
  const ShardedState shared = SharedByPasses(stages.plan());
  const auto complete = [&] {
    return shared == ShardedState::kNone
               ? CompleteSchedule(std::move(ops), stages.Work(loads), costs)
               : CompleteSharded(std::move(ops), stages.Work(loads), shared);
  };
  if (!in_file_) return complete();
  // Built ones are proved by their tests; a file may hold anything.
  Schedule schedule;
  try {
    schedule = complete();
  } catch (const ConfigError& deadlock) {
    throw ConfigError(name_ + ": " + deadlock.what());
  }
  Validate(schedule, name_);
  return schedule;
}

Schedule PlanSchedule::StepOps(const StageLayout& stages, const StepLoads& loads,
                               const SimulationCosts& costs) const {
  if (DelaysUpdates(name_))
    return CompleteSchedule(DelayedOps(stages, loads), stages.Work(loads.All()), costs);
  const bool alone = loads.owners.empty() && loads.next.empty();
  return alone ? StepOps(stages, loads.now, costs) : OpsAhead(stages, loads, costs);
}

Schedule PlanSchedule::DelayedOps(const StageLayout& stages, const StepLoads& loads) {
  EQUIPOISE_CHECK(loads.next.empty() || loads.next.size() == loads.now.size(), "a step of ",
                  loads.now.size(), " micro-batches before one of ", loads.next.size());
  return BuildPipeDream2Bw(stages.graph(), static_cast<int>(loads.now.size()), loads.begun,
                           !loads.next.empty());
}

Schedule PlanSchedule::OpsAhead(const StageLayout& stages, const StepLoads& loads,
                                const SimulationCosts& costs) const {
  const EncoderPipelines encoder = stages.Encoder(loads.now);
  Schedule text = Build(stages.text_graph(), static_cast<int>(loads.now.size()));
  text.work = stages.TextWork(loads.now);
  const Schedule step = loads.owners.empty()
                            ? FillBubbles(text, encoder, costs, stages.plan().encoder)
                            : TakeFeatures(text, encoder, loads.owners);
  return PrefetchNext(step, encoder, stages.Encoder(loads.next).runs,
                      WithTaken(costs, loads.taken()));
}

Schedule PlanSchedule::ComputeOps(const StageLayout& stages, const std::vector<LayerLoad>& loads,
                                  const SimulationCosts& costs) const {
  if (!FillsBubbles(stages.plan().encoder)) {
    return AddReductions(
        DropIdleOps(Build(stages.graph(), static_cast<int>(loads.size())), stages.Work(loads)));
  }
  Schedule text = Build(stages.text_graph(), static_cast<int>(loads.size()));
  text.work = stages.TextWork(loads);
  return FillBubblesToSimulate(text, stages.Encoder(loads), costs, stages.plan().encoder);
}

Schedule PlanSchedule::ComputeOps(const StageLayout& stages, const StepLoads& loads,
                                  const SimulationCosts& costs) const {
  if (DelaysUpdates(name_))
    return AddReductions(DropIdleOps(DelayedOps(stages, loads), stages.Work(loads.All())));
  const bool alone = loads.owners.empty() && loads.next.empty();
  return alone ? ComputeOps(stages, loads.now, costs) : OpsAhead(stages, loads, costs);
}

Schedule PlanSchedule::ForwardOps(const StageLayout& stages, const std::vector<LayerLoad>& loads,
                                  const SimulationCosts& costs) {
  const auto count = static_cast<int>(loads.size());
  if (FillsBubbles(stages.plan().encoder)) {
    return Filled(BuildForwards(stages.text_graph(), count), stages, loads, costs,
                  EncoderPlacement::kThreePhase);
  }
  Schedule forwards = BuildForwards(stages.graph(), count);
  const ShardedState shared = SharedByPasses(stages.plan());
  if (shared == ShardedState::kNone)
    return CompleteSchedule(std::move(forwards), stages.Work(loads), costs);
  return CompleteSharded(std::move(forwards), stages.Work(loads), shared);
}

}  // namespace equipoise
