#include "trainer/run/parallel_model.h"

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "parallel/comm/all_to_all.h"
#include "parallel/comm/values.h"
#include "parallel/schedule/prefetch.h"

namespace equipoise {
namespace {

const std::vector<std::string> kAllComponents = {"vision", "projector", "llm"};

bool Holds(const std::vector<Parameter*>& parameters, const Parameter* parameter) {
  return std::find(parameters.begin(), parameters.end(), parameter) != parameters.end();
}

// The model with nothing that is trained of a frozen component.
ModelConfig AllFrozen(ModelConfig config) {
  config.unfreeze.clear();
  return config;
}

// Pairs of pipeline ranks that hold successive stages.
std::vector<std::pair<int, int>> Neighbours(const StageGraph& graph) {
  std::vector<std::pair<int, int>> pairs;
  for (const StageNode& stage : graph.stages) {
    for (const int next : stage.next) {
      const int next_rank = graph.stages[static_cast<size_t>(next)].rank;
      if (next_rank != stage.rank) pairs.emplace_back(stage.rank, next_rank);
    }
  }
  return pairs;
}

}  // namespace

ParallelModel::ParallelModel(const ModelConfig& config, const Plan& plan, const Options& options,
                             Communicator& world, TimelineRecorder& recorder)
    : plan_(plan),
      world_(world),
      groups_(plan.mesh, world, plan.shards() > 1 ? plan.shards() : 0),
      recorder_(recorder),
      plan_schedule_(plan),
      costs_(options.costs),
      forward_only_(AllFrozen(config), plan, kAllComponents) {
  Communicator& shards = groups_.shards();
  Communicator& pipeline = groups_.along(Axis::kPipeline);
  ModelPart::Options part = options.part;
  part.encoder_stream = part.encoder_stream && FillsBubbles(plan.encoder);
  part.sharding = {plan.sharded, shards.size(), shards.rank(), plan.offloaded};
  if (plan.tensor() > 1)
    part.tensor = {&groups_.along(Axis::kTensor), groups_.at.tensor, plan.tensor(), plan.sequence};
  const ExecutorLane lane = LaneHere();
  part.lane = lane.lane;
  if (lane.ranks > 1) {
    const int rank = groups_.at.tensor % lane.ranks;
    lane_group_ = lane.tensor->Split(lane.lane, rank, "encoder tensor");
    part.encoder_tensor = {lane_group_.get(), rank, lane.ranks};
  }
  if (plan.context() > 1) {
    Communicator& context = groups_.along(Axis::kContext);
    context.Connect(AllPairs(context.size()));
    part.tensor.context = {&context, context.rank(), context.size()};
  }
  part_ = std::make_unique<ModelPart>(config, StageLayout(config, plan, part.freeze),
                                      groups_.at.pipeline, part);
  encoder_copy_ = part_->encoder_copy();
  if (plan.encoder_copies() > 1) SplitCopies();
  shards_ = std::make_unique<Shards>(
      ZeroShards(plan.sharded, part_->parameters(), shards, options.bucket_bytes, &copied_));
  if (part.sharding.gradients()) {
    // Sums in host memory go over the host's network, all at once.
    Communicator* copies = SumsCopiesAtEnd() ? nullptr : groups_.shard_copies();
    units_ = std::make_unique<ShardedUnits>(part_->parameters(), shards, copies);
    part_->units = units_.get();
  } else if (shards_->ranks() > 1) {
    reducer_ = std::make_unique<GradientReducer>(part_->parameters(), shards, *shards_,
                                                 groups_.shard_copies());
  } else {
    GradientReducer::Options reduce;
    reduce.bucket_bytes = options.bucket_bytes;
    reducer_ =
        std::make_unique<GradientReducer>(part_->parameters(), groups_.same_weights(), reduce);
  }
  executor_ = std::make_unique<Executor>(*part_, pipeline, recorder_, part.device, lane,
                                         part.encoder_stream);
  pipeline.Connect(Neighbours(part_->plan().graph()));
  tied_ = part_->tied_copies();
  tied_group_ = pipeline.Split(tied_.empty() ? 1 : 0, groups_.at.pipeline, "tied");
  part_->on_layer_ready = [this](const std::vector<Parameter*>& parameters) { Ready(parameters); };
  part_->on_stage_ready = part_->on_layer_ready;
  part_->on_all_ready = [this] { FinishReduction(); };
}

// One lane with no tensor ranks to speak of, unless the encoder has several.
ExecutorLane ParallelModel::LaneHere() const {
  if (plan_.encoder_lanes() == 1) return {};
  const int ranks = plan_.encoder_tensor();
  return {groups_.at.tensor / ranks, ranks, &groups_.along(Axis::kTensor)};
}

// The group of the ranks that hold the same part of the same layers of an encoder, copy by copy.
void ParallelModel::SplitCopies() {
  const int ranks = plan_.encoder_ranks(), tensor = plan_.encoder_tensor();
  const MeshCoordinates& at = groups_.at;
  const int part = (at.data * ranks + at.pipeline % ranks) * tensor + at.tensor % tensor;
  const int copy = at.pipeline / ranks * plan_.encoder_lanes() + at.tensor / tensor;
  copies_group_ = world_.Split(part, copy, "encoder");
  copied_ = {CopiedNumel(), 0, copies_group_->size(), copies_group_->rank()};
}

Schedule ParallelModel::StepSchedule(const StepLoads& loads) const {
  return plan_schedule_.StepOps(part_->plan(), loads, CostsOf(loads.All()));
}

std::vector<int> ParallelModel::NextOwnersIn(const Schedule& schedule,
                                             const StepLoads& loads) const {
  if (loads.next.empty()) return {};
  return NextOwners(schedule, part_->plan().Encoder({}), static_cast<int>(loads.now.size()));
}

// By micro-batch from number `first` on, whether this rank begins to encode it.
std::vector<bool> ParallelModel::EncodedHere(const Schedule& schedule, size_t first) const {
  std::vector<bool> here(static_cast<size_t>(schedule.micro_batches) - first, false);
  for (const Op& op : schedule.ranks[static_cast<size_t>(groups_.at.pipeline)]) {
    const bool begins = op.kind == OpKind::kEncoderForward && part_->stages().count(op.stage) > 0 &&
                        plan_.LayersOf(op.stage).begin == 0;
    const auto number = static_cast<size_t>(op.micro_batch);
    if (begins && number >= first) here[number - first] = true;
  }
  return here;
}

std::vector<bool> ParallelModel::NeedsPictures(const std::vector<LayerLoad>& loads) const {
  std::vector<bool> needs(loads.size(), part_->needs_pictures());
  if (part_->has_loss() || plan_.encoder_copies() == 1) return needs;
  // Those that this rank's copy of the encoder takes.
  return EncodedHere(StepSchedule(loads), 0);
}

std::vector<bool> ParallelModel::NeedsPictures(const std::vector<LayerLoad>& loads,
                                               StepLoads& before) const {
  const bool all = part_->has_loss() || plan_.encoder_copies() == 1;
  if (all || before.now.empty()) {
    before = StepLoads{loads};
    return NeedsPictures(loads);
  }
  before.next = loads;
  const Schedule schedule = StepSchedule(before);
  std::vector<bool> needs = EncodedHere(schedule, before.now.size());
  before = StepLoads{loads, NextOwnersIn(schedule, before)};
  return needs;
}

std::vector<LayerLoad> ParallelModel::LoadsAtPeak(std::vector<LayerLoad> loads) const {
  const std::vector<LayerLoad> next = loads;
  if (delays_updates()) loads.insert(loads.end(), next.begin(), next.end());
  return loads;
}

void ParallelModel::DropAhead() {
  owners_.clear();
  begun_ = false;
  executor_->DropAhead();
  part_->DropAhead();
}

void ParallelModel::RunStep(ModelPart::Pass pass, const StepIdentity& step) {
  pass.evaluate = false;
  parameters().ZeroGradient();
  ready_.clear();
  PadLoads(pass.loads);
  StepLoads loads{pass.loads, std::exchange(owners_, {}), pass.next_loads, begun_};
  EQUIPOISE_CHECK(loads.owners.empty() || loads.owners.size() == loads.now.size(),
                  "features of another step");
  taken_ = loads.taken();
  schedule_ = StepSchedule(loads);
  RequireSamePlan({step.hash, step.items, &schedule_, groups_.at.data}, world_);
  pass.schedule = &schedule_;
  part_->Begin(std::move(pass));
  started_s_ = recorder_.NowSeconds();
  executor_->Run(schedule_);
  part_->EndStep();
  begun_ = delays_updates() && !loads.next.empty();
  if (!delays_updates()) owners_ = NextOwnersIn(schedule_, loads);
}

void ParallelModel::Evaluate(ModelPart::Pass pass) {
  PadLoads(pass.loads);
  if (pass.loads.empty()) return;  // fewer packs than data ranks
  pass.evaluate = true;
  schedule_ = PlanSchedule::ForwardOps(forward_only_, pass.loads, CostsOf(pass.loads));
  pass.schedule = &schedule_;
  part_->Begin(std::move(pass));
  executor_->Run(schedule_);
}

// Passes are collective where weights or gradients are shared out: every data rank makes as many,
// of empty micro-batches where it has none.
void ParallelModel::PadLoads(std::vector<LayerLoad>& loads) {
  if (!units_) return;
  const std::vector<double> most =
      AllReduceValues(groups_.same_weights(),
                      std::vector<double>{static_cast<double>(loads.size())}, ReduceOp::kMax);
  loads.resize(static_cast<size_t>(most[0]));
}

// Reduces gradients that are complete. Weights that other pipeline ranks have copies of wait for
// theirs (FinishReduction()).
void ParallelModel::Ready(const std::vector<Parameter*>& parameters) {
  std::vector<Parameter*> complete;
  for (Parameter* parameter : parameters) {
    if (units_ || Holds(tied_, parameter) || Holds(encoder_copy_, parameter)) continue;
    if (ready_.insert(parameter).second) complete.push_back(parameter);
  }
  part_->SumPartial(complete);
  for (const Parameter* parameter : complete) reducer_->Ready(*parameter);
}

// Sets the gradient of each copy of a tied weight to the sum over copies, in the order of layers:
// embedding, then head.
void ParallelModel::SumTied() {
  if (tied_.empty() || !tied_[0]->trainable) return;
  at::Tensor sum = SummedGradient(*tied_[0]);
  for (size_t i = 1; i < tied_.size(); ++i) sum.add_(SummedGradient(*tied_[i]));
  tied_group_->AllReduce(sum, ReduceOp::kSum).WaitOnStream();
  for (size_t i = 1; i < tied_.size(); ++i) SummedGradient(*tied_[i]).copy_(sum);
}

// This rank's gradient of a weight that is a unit of its own where gradients are shared out.
at::Tensor ParallelModel::SummedGradient(const Parameter& parameter) {
  return units_ ? parameters().GradientSlice(parameters().UnitOf(parameter)) : parameter.gradient;
}

// Elements of the gradient of this rank's copy of the encoder, which lies in front.
int64_t ParallelModel::CopiedNumel() const {
  if (encoder_copy_.empty()) return 0;
  EQUIPOISE_CHECK(encoder_copy_.front()->gradient.storage_offset() == 0,
                  "the encoder is not first");
  const at::Tensor& last = encoder_copy_.back()->gradient;
  return Shards::Padded(last.storage_offset() + last.numel(), /*ranks=*/1);
}

// Each copy has the gradients of the micro-batches that it ran.
void ParallelModel::SumEncoderCopies() {
  if (encoder_copy_.empty()) return;
  at::Tensor sum = parameters().gradient().narrow(0, 0, CopiedNumel());
  copies_group_->AllReduce(sum, ReduceOp::kSum).WaitOnStream();
}

ZeroOptimizer::Groups ParallelModel::optimizer_groups() {
  return {groups_.shards(), world_, groups_.shard_copies(), copies_group_.get(), copied_};
}

void ParallelModel::FinishReduction() {
  if (units_) units_->Finish();
  SumTied();
  SumEncoderCopies();
  if (reducer_) reducer_->Finish();
  if (units_ && SumsCopiesAtEnd()) SumShardCopies();
}

// Whether the slices that this rank's group has summed are summed over the groups when all are
// there, not one by one.
bool ParallelModel::SumsCopiesAtEnd() {
  return parameters().gradient().device() != parameters().device();
}

void ParallelModel::SumShardCopies() {
  at::Tensor& slices = parameters().gradient();
  if (groups_.shard_copies() == nullptr || slices.numel() == 0) return;
  groups_.shard_copies()->AllReduce(slices, ReduceOp::kSum).WaitOnStream();
}

}  // namespace equipoise
