#include "trainer/parallel_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "configs/error.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/schedule_text.h"
#include "parallel/schedule/validate.h"
#include "parallel/zero/zero_optimizer.h"

namespace equipoise {
namespace {

const std::vector<std::string> kEverything = {"vision", "projector", "llm"};

// The compute ops of a file's schedule, for this plan's graph.
Schedule FileSchedule(Schedule schedule, const std::string& path, const StageGraph& graph,
                      int micro_batches) {
  if (schedule.micro_batches != micro_batches ||
      schedule.graph.num_stages() != graph.num_stages()) {
    throw ConfigError(path + ": " + std::to_string(schedule.graph.num_stages()) + " stages and " +
                      std::to_string(schedule.micro_batches) + " micro-batches; this run has " +
                      std::to_string(graph.num_stages()) + " and " + std::to_string(micro_batches) +
                      " a data rank; write the file for those");
  }
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    const int there = schedule.graph.stages[s].rank, here = graph.stages[s].rank;
    if (there == here) continue;
    throw ConfigError(path + ": stage " + std::to_string(s) + " on rank " + std::to_string(there) +
                      "; this plan has it on rank " + std::to_string(here));
  }
  schedule.graph = graph;
  for (std::vector<Op>& ops : schedule.ranks) {
    std::erase_if(ops, [](const Op& op) { return !IsCompute(op.kind); });
  }
  return schedule;
}

// The schedule of a plan that has it from a file.
std::optional<Schedule> GivenSchedule(const Plan& plan) {
  if (plan.schedule_text.empty()) return std::nullopt;
  return ParseSchedule(plan.schedule_text, plan.schedule);
}

// The pipeline ranks that send to each other.
std::vector<std::pair<int, int>> Neighbours(const StageGraph& graph) {
  std::vector<std::pair<int, int>> pairs;
  for (const StageNode& stage : graph.stages) {
    for (const int next : stage.next) {
      const int there = graph.stages[static_cast<size_t>(next)].rank;
      if (there != stage.rank) pairs.emplace_back(stage.rank, there);
    }
  }
  return pairs;
}

}  // namespace

ParallelModel::ParallelModel(const ModelConfig& config, const Plan& plan, const Options& options,
                             Communicator& world, TimelineRecorder& recorder)
    : plan_(plan),
      world_(world),
      groups_(plan.mesh(), world),
      recorder_(recorder),
      given_schedule_(GivenSchedule(plan)),
      forward_only_(config, plan, kEverything) {
  ModelPart::Options part = options.part;
  part.shards = plan.zero > 0 ? plan.data : 1;
  if (plan.tensor > 1) part.tensor = {groups_.tensor.get(), groups_.at.tensor, plan.tensor};
  part_ = std::make_unique<ModelPart>(config, StagePlan(config, plan, part.freeze),
                                      groups_.at.pipeline, part);
  shards_ = std::make_unique<Shards>(
      ZeroShards(plan.zero, part_->parameters(), *groups_.data, options.bucket_bytes));
  if (shards_->ranks() > 1) {
    reducer_ = std::make_unique<GradientReducer>(part_->parameters(), *groups_.data, *shards_);
  } else {
    GradientReducer::Options reduce;
    reduce.bucket_bytes = options.bucket_bytes;
    reducer_ = std::make_unique<GradientReducer>(part_->parameters(), *groups_.data, reduce);
  }
  executor_ = std::make_unique<Executor>(*part_, *groups_.pipeline, recorder_, part.device);
  groups_.pipeline->Connect(Neighbours(part_->plan().graph()));
  tied_ = part_->tied_copies();
  tied_group_ = groups_.pipeline->Split(tied_.empty() ? 1 : 0, groups_.at.pipeline, "tied");
  part_->on_layer_ready = [this](const std::vector<Parameter*>& parameters) { Ready(parameters); };
  part_->on_stage_ready = part_->on_layer_ready;
  part_->on_all_ready = [this] { FinishReduction(); };
}

Schedule ParallelModel::StepSchedule(const std::vector<LayerLoad>& loads) const {
  const StagePlan& stages = part_->plan();
  const auto micro_batches = static_cast<int>(loads.size());
  Schedule ops = given_schedule_
                     ? FileSchedule(*given_schedule_, plan_.schedule, stages.graph(), micro_batches)
                     : BuildSchedule(plan_.schedule, stages.graph(), micro_batches);
  const auto complete = [&] {
    return CompleteSchedule(std::move(ops), stages.Work(loads),
                            stages.Costs(loads, part_->element_bytes()));
  };
  if (!given_schedule_) return complete();
  // Built ones are proved by their tests; a file may hold anything.
  Schedule schedule;
  try {
    schedule = complete();
  } catch (const ConfigError& deadlock) {
    throw ConfigError(plan_.schedule + ": " + deadlock.what());
  }
  Validate(schedule, plan_.schedule);
  return schedule;
}

void ParallelModel::RunStep(ModelPart::Pass pass, const StepIdentity& step) {
  pass.evaluate = false;
  parameters().ZeroGradient();
  ready_.clear();
  schedule_ = StepSchedule(pass.loads);
  RequireSamePlan({step.hash, step.items, &schedule_, groups_.at.data}, world_);
  part_->Begin(std::move(pass));
  started_s_ = recorder_.NowSeconds();
  executor_->Run(schedule_);
}

void ParallelModel::Evaluate(ModelPart::Pass pass) {
  if (pass.loads.empty()) return;  // fewer packs than data ranks
  pass.evaluate = true;
  const StagePlan& stages = forward_only_;
  schedule_ =
      CompleteSchedule(BuildForwards(stages.graph(), static_cast<int>(pass.loads.size())),
                       stages.Work(pass.loads), stages.Costs(pass.loads, part_->element_bytes()));
  part_->Begin(std::move(pass));
  executor_->Run(schedule_);
}

// A tied weight waits for its other copy.
void ParallelModel::Ready(const std::vector<Parameter*>& parameters) {
  for (const Parameter* parameter : parameters) {
    if (std::find(tied_.begin(), tied_.end(), parameter) != tied_.end()) continue;
    if (ready_.insert(parameter).second) reducer_->Ready(*parameter);
  }
}

// Each copy gets the sum of all: embedding first, then head, as they come in the model.
void ParallelModel::SumTied() {
  if (tied_.empty() || !tied_[0]->trainable) return;
  at::Tensor sum = tied_[0]->gradient;
  for (size_t i = 1; i < tied_.size(); ++i) sum.add_(tied_[i]->gradient);
  tied_group_->AllReduce(sum, ReduceOp::kSum).Wait();
  for (size_t i = 1; i < tied_.size(); ++i) tied_[i]->gradient.copy_(sum);
}

void ParallelModel::FinishReduction() {
  SumTied();
  reducer_->Finish();
}

}  // namespace equipoise
