#include "balance/costs/memory_model.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "balance/costs/stage_costs.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/pipedream_2bw.h"

// The peak of a rank is found by walking its list of ops as the executor runs it: a forward adds
// what the stage keeps, the op that frees it (B, W or U) takes it away, and at each op the layer
// that runs needs its workspace and what it computes again on top. The worst moment counts; what
// stays over the whole step (weights, gradients, moments) is added. O(ops x layers of a stage), and
// equal micro-batches are looked at once.

namespace equipoise {
namespace {

constexpr int64_t kFp32 = 4;
// Pinned memory of gradients on their way to an offloaded optimizer (AdamW::StepOffloaded()).
constexpr int64_t kArrivingGradients = int64_t{32} << 20;

// Bytes of pinned memory for a buffer: LibTorch rounds up to powers of two.
int64_t Pinned(int64_t bytes) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

// What delayed updates (PipeDream-2BW) keep beside: weights before the last update and, where
// passes of the next step make some, its gradients.
void AddVersions(const CostModel& costs, const Plan& plan, const Schedule& schedule,
                 const std::vector<int>& stages, MemoryForecast& forecast) {
  if (!DelaysUpdates(plan.schedule)) return;
  const PassesAhead ahead = PassesAheadOf(schedule.graph, schedule.own());
  for (const int stage : stages) {
    const int64_t trained = ParametersOfStage(costs, plan, stage).trained;
    const NextGradients next = NextGradientsOf(schedule.graph, ahead, stage);
    forecast.parameters += costs.options().element_bytes * trained;
    if (next == NextGradients::kAll) forecast.gradients += kFp32 * trained;
    if (next != NextGradients::kOfHead) continue;
    // With its copy of a weight that is tied to another stage's, which no layer counts.
    const LayerSpan layers = plan.LayersOf(stage);
    int64_t before = 0;
    for (int layer = layers.begin; layer + 1 < layers.end; ++layer)
      before += costs.TrainedParameters(layer);
    forecast.gradients += kFp32 * (trained - before);
  }
}

// Bytes that stay over the whole step. `stages`: of the rank.
MemoryForecast States(const CostModel& costs, const Plan& plan, const std::vector<int>& stages) {
  int64_t trained = 0, copied = 0, bytes = 0, shared = 0;
  for (const int stage : stages) {
    const StageParameters parameters = ParametersOfStage(costs, plan, stage);
    trained += parameters.trained;
    if (plan.ComponentOfStage(stage).encoder) copied += parameters.trained;
    bytes += parameters.bytes;
    shared += parameters.shared_bytes;
  }
  const int64_t element = costs.options().element_bytes;
  const int64_t shards = plan.shards(), copies = StateCopies(plan);
  MemoryForecast forecast;
  forecast.parameters = bytes;
  forecast.gradients = kFp32 * trained;
  if (plan.IsSharded(ShardedState::kGradients)) forecast.gradients /= shards;
  if (plan.IsSharded(ShardedState::kParameters))
    forecast.parameters = bytes - shared + shared / shards;
  const auto of_shard = [&](double bytes) {
    return static_cast<int64_t>(bytes * static_cast<double>(trained - copied)) / shards +
           static_cast<int64_t>(bytes * static_cast<double>(copied)) / (shards * copies);
  };
  forecast.optimizer = of_shard(OptimizerStateBytes(costs.options().style, element));
  const bool gradients = costs.Offloads(plan, ShardedState::kGradients);
  const bool values = costs.Offloads(plan, ShardedState::kParameters);
  if (costs.Offloads(plan, ShardedState::kOptimizer)) {
    const RunStyle& style = costs.options().style;
    forecast.host = of_shard(values ? OptimizerStateBytes(style, element)
                                    : OffloadedStateBytes(style, element));
    if (!gradients) forecast.host += kArrivingGradients;
    forecast.optimizer = 0;
  }
  if (gradients) forecast.host += Pinned(std::exchange(forecast.gradients, 0));
  if (values) {
    forecast.host += Pinned(shared / shards);
    forecast.parameters = bytes - shared;
  }
  const Cluster& cluster = costs.cluster();
  int64_t& beside = cluster.multiprocessors == 0 ? forecast.optimizer : forecast.host;
  beside += of_shard(costs.options().style.outer_bytes);
  forecast.reserve =
      static_cast<int64_t>(cluster.reserve_share * static_cast<double>(cluster.memory_bytes));
  return forecast;
}

// Halves that LibTorch takes of pinned memory for one half of a tensor, in the mean: it rounds up
// to powers of two.
constexpr int64_t kPinnedRounding = 3;

struct Moment {
  int64_t kept = 0, temporary = 0;
  int64_t total() const { return kept + temporary; }
};

// One pass of a stage over a micro-batch.
struct StagePass {
  int64_t kept = 0;          // all layers'
  int64_t host = 0;          // likewise, in host memory
  int64_t deferred = 0;      // the same between the two halves of a backward
  Moment forward, backward;  // the worst moments, with what the stage has kept until then
};

class StageMemory {
 public:
  StageMemory(const CostModel& costs, const Plan& plan)
      : costs_(costs), plan_(plan), last_(static_cast<size_t>(plan.num_stages())) {}

  // Planning asks for the same micro-batch again and again.
  const StagePass& Of(int stage, const LayerLoad& load) {
    std::optional<Known>& last = last_[static_cast<size_t>(stage)];
    if (!last || last->load != load) last = Known{load, Work(stage, load)};
    return last->pass;
  }

 private:
  struct Known {
    LayerLoad load;
    StagePass pass;
  };

  // Where weights are whole layer by layer: those of the layer that runs, and of the one that is
  // gathered meanwhile, which comes next in this direction (`next`). The slice of one more is on
  // its way from host memory.
  int64_t GatheredBytes(int layer, int next, const LayerSpan& stage) const {
    const bool offloaded = costs_.Offloads(plan_, ShardedState::kParameters);
    const bool shared = plan_.IsSharded(ShardedState::kParameters) && plan_.shards() > 1;
    if (!offloaded && !shared) return 0;
    const auto bytes = [&](int other) {
      return stage.begin <= other && other < stage.end ? PassSharedBytes(costs_, other) : 0;
    };
    const int64_t whole = PassSharedBytes(costs_, layer) + bytes(next);
    return offloaded ? whole + bytes(2 * next - layer) / plan_.shards() : whole;
  }

  // Likewise the gradient of the layer that runs, and that of the layer before, which is summed to
  // a shard. One that goes to host memory is added to what is there.
  int64_t WholeGradientBytes(int layer, const LayerSpan& stage) const {
    if (!plan_.IsByLayer(ShardedState::kGradients)) return 0;
    const bool fp32 = costs_.options().style.program->fp32_whole_gradients;
    const int64_t element = fp32 ? kFp32 : costs_.options().element_bytes;
    const auto trained = [&](int other) {
      const bool here = other < stage.end && costs_.Trainable(other);
      return here ? element * PassTrainedParameters(costs_, plan_, other) : 0;
    };
    const int shards = plan_.shards();
    const bool offloaded = costs_.Offloads(plan_, ShardedState::kGradients);
    int64_t bytes = trained(layer) + trained(layer + 1);
    if (shards > 1) bytes += trained(layer + 1) / shards;
    if (offloaded) bytes += trained(layer + 1) / shards;
    return bytes;
  }

  StagePass Work(int stage, const LayerLoad& load) const {
    const LayerSpan layers = plan_.LayersOf(stage);
    StagePass pass;
    const int64_t at_end = KeptAtEndBytes(costs_, plan_, stage, load);
    // Of a layer that is offloaded the memory is freed when the next one has been computed, and
    // taken again while the one behind it goes backwards.
    const auto offloaded = [&](int layer) {
      const bool here = layers.begin <= layer && layer < layers.end;
      return here ? costs_.HostBytes(layer, load, RecomputeOf(plan_, layer)) : 0;
    };
    int64_t leaving = 0;
    for (int layer = layers.begin; layer < layers.end; ++layer)
      leaving = std::max(leaving, offloaded(layer));
    for (int layer = layers.begin; layer < layers.end; ++layer) {
      const int64_t kept = costs_.KeptBytes(layer, load, RecomputeOf(plan_, layer));
      const int64_t again = costs_.KeptBytes(layer, load, Recompute::kNone) - kept;
      const int64_t work = again + costs_.WorkBytes(layer, load);
      pass.kept += kept;
      pass.host += offloaded(layer);
      Moment now = {pass.kept, leaving + work + GatheredBytes(layer, layer + 1, layers)};
      // The head makes its gradient with the loss.
      if (layer + 1 == costs_.num_layers()) now.temporary += WholeGradientBytes(layer, layers);
      if (now.total() > pass.forward.total()) pass.forward = now;
      now.temporary = leaving + offloaded(layer - 1) + work +
                      GatheredBytes(layer, layer - 1, layers) + WholeGradientBytes(layer, layers);
      if (layer + 1 == layers.end) now.kept += at_end;
      if (costs_.HasBackward(layer) && now.total() > pass.backward.total()) pass.backward = now;
    }
    pass.kept += at_end;
    pass.deferred = DeferredBytes(costs_, plan_, stage, load);
    return pass;
  }

  const CostModel& costs_;
  const Plan& plan_;
  std::vector<std::optional<Known>> last_;  // [stage]
};

// The position in a rank's list at which what each compute op keeps is freed; -1: never kept.
std::vector<int> FreedAt(const Schedule& schedule, int rank) {
  const std::vector<Op>& list = schedule.ranks[static_cast<size_t>(rank)];
  // Where the micro-batches of a stage begin: of the stages in this list alone.
  std::vector<int> first(schedule.graph.stages.size(), -1);
  int slots = 0;
  const auto slot = [&](const Op& op) {
    int& at = first[static_cast<size_t>(op.stage)];
    if (at < 0) at = std::exchange(slots, slots + schedule.micro_batches);
    return static_cast<size_t>(at + op.micro_batch);
  };
  for (const Op& op : list) slot(op);
  std::vector<int> freed(static_cast<size_t>(slots), -1), freed_at;
  for (size_t p = 0; p < list.size(); ++p) {
    if (!IsCompute(list[p].kind) || IsForward(list[p].kind)) continue;
    freed[slot(list[p])] = static_cast<int>(p);
  }
  freed_at.reserve(list.size());
  for (const Op& op : list) freed_at.push_back(IsCompute(op.kind) ? freed[slot(op)] : -1);
  return freed_at;
}

// Bytes of features in a step whose encoder runs a step ahead: what this op, the V of a copy's last
// stage, leaves for the next step, and what it has taken from the step before.
struct FeatureBytes {
  int64_t left = 0, taken = 0;
};

FeatureBytes FeaturesOf(const CostModel& costs, const Plan& plan, const Schedule& schedule,
                        const Op& op, const LayerLoad& load) {
  if (op.kind != OpKind::kEncoderForward) return {};
  const StageNode& node = schedule.graph.stages[static_cast<size_t>(op.stage)];
  const bool last = !schedule.graph.stages[static_cast<size_t>(node.next.front())].encoder;
  if (!last) return {};
  const int64_t bytes = costs.BoundaryBytes(plan.LayersOf(op.stage).end - 1, load);
  const bool stays = !schedule.work.Sends(op.stage, op.micro_batch);
  return stays ? FeatureBytes{bytes, 0} : FeatureBytes{0, bytes};
}

// Whether some copy of the encoder makes features for the next step; else they are sent as they are
// made.
bool RunsAhead(const Plan& plan, const Schedule& schedule) {
  const int depth = plan.components.front().num_stages();
  for (int copy = 1; copy <= plan.encoder_copies(); ++copy) {
    const int last = copy * depth - 1;
    for (int i = 0; i < schedule.micro_batches; ++i) {
      if (schedule.work.Runs(last, i) && !schedule.work.Sends(last, i)) return true;
    }
  }
  return false;
}

// The most that a rank holds of features beside its activations, where it makes some ahead.
int64_t MostFeatureBytes(const CostModel& costs, const Plan& plan, const Schedule& schedule,
                         const std::vector<LayerLoad>& micro_batches, int pipeline_rank, int lane) {
  if (!FillsBubbles(plan.encoder) || !RunsAhead(plan, schedule)) return 0;
  std::vector<FeatureBytes> each;
  int64_t held = 0;  // from the start of the step: what is taken
  for (const Op& op : schedule.ranks[static_cast<size_t>(pipeline_rank)]) {
    if (!RunsInLane(schedule.graph, op, lane)) continue;
    const LayerLoad& load = micro_batches[static_cast<size_t>(op.micro_batch)];
    each.push_back(FeaturesOf(costs, plan, schedule, op, load));
    held += each.back().taken;
  }
  int64_t most = held;
  for (const FeatureBytes& features : each) {
    held += features.left - features.taken;
    most = std::max(most, held);
  }
  return most;
}

// Buffers of the transfers at the ends of a rank's stages: one value in flight each way.
int64_t BoundaryBuffers(const CostModel& costs, const Plan& plan,
                        const std::vector<LayerLoad>& micro_batches,
                        const std::vector<int>& stages) {
  if (plan.pipeline() == 1) return 0;
  int64_t bytes = 0;
  const auto add = [&](int boundary) {
    const int last = plan.LayersOf(boundary).end - 1;
    int64_t largest = 0;
    for (size_t i = 0; i < micro_batches.size(); ++i) {
      if (i > 0 && micro_batches[i] == micro_batches[i - 1]) continue;
      largest = std::max(largest, costs.BoundaryBytes(last, micro_batches[i]));
    }
    bytes += 2 * largest;
  };
  for (const int stage : stages) {
    // Of several copies of an encoder one sends at a time.
    if (plan.LayersOf(stage).begin > 0) add(stage - 1);
    if (plan.NextStage(stage) >= 0) add(stage);
  }
  return bytes;
}

// Shared-out gradients that are whole between the two halves of backwards: those of whole stages.
int64_t DeferredGradientBytes(const CostModel& costs, const Plan& plan, const Schedule& schedule,
                              int pipeline_rank) {
  if (!plan.IsByLayer(ShardedState::kGradients)) return 0;
  std::set<int> stages;
  for (const Op& op : schedule.ranks[static_cast<size_t>(pipeline_rank)]) {
    if (op.kind == OpKind::kWeightGradient) stages.insert(op.stage);
  }
  int64_t bytes = 0;
  for (const int stage : stages) bytes += kFp32 * ParametersOfStage(costs, plan, stage).trained;
  return bytes;
}

}  // namespace

int64_t HostBytesOfNode(const Cluster& cluster, const Plan& plan,
                        const std::vector<MemoryForecast>& by_pipeline_rank) {
  const auto none = [](const MemoryForecast& each) { return each.host == 0; };
  if (std::all_of(by_pipeline_rank.begin(), by_pipeline_rank.end(), none)) return 0;
  int64_t most = 0, node = 0;
  for (int rank = 0; rank < plan.num_ranks(); ++rank) {
    if (rank % cluster.devices_per_node == 0) node = 0;
    const int pipeline_rank = plan.mesh.Coordinate(rank, Axis::kPipeline);
    node += by_pipeline_rank[static_cast<size_t>(pipeline_rank)].host;
    most = std::max(most, node);
  }
  return most;
}

namespace {

// Features of an encoder with ranks or a place of its own that the first text stage has not taken
// yet, and their gradients, which wait for the encoder's backward: their memory is taken when they
// are made or their receive is posted (executor.cc), which may be long before.
class WaitingFeatures {
 public:
  WaitingFeatures(const CostModel& costs, const Plan& plan, const Schedule& schedule, int lane)
      : costs_(costs), plan_(plan), schedule_(schedule), lane_(lane) {}

  int64_t bytes() const { return bytes_; }
  void Before(const Op& op) {
    if (op.kind != OpKind::kForward && op.kind != OpKind::kEncoderBackward) return;
    const auto found = each_.find({op.stage, op.micro_batch});
    if (found == each_.end()) return;
    bytes_ -= found->second;
    each_.erase(found);
  }
  void After(const Op& op, const LayerLoad& load) {
    const StageNode& node = Node(op.stage);
    if (op.kind == OpKind::kRecv) {
      if (node.encoder != Node(op.peer).encoder)
        Add(op, op.stage, node.encoder ? op.stage : op.peer, load);
    } else if (op.kind == OpKind::kEncoderForward) {
      // Where it keeps its output for its backward, that is part of what it keeps.
      const int to = node.next.front();
      const bool keeps = schedule_.graph.HasBackward(op.stage) &&
                         KeptAtEndBytes(costs_, plan_, op.stage, load) > 0;
      if (!keeps && Stays(op.stage, to, op.micro_batch)) Add(op, to, op.stage, load);
    } else if (op.kind == OpKind::kBackward || op.kind == OpKind::kInputGradient) {
      for (int from = 0; from < schedule_.graph.num_stages() && Node(from).encoder; ++from) {
        if (schedule_.graph.HasBackward(from) && Stays(from, op.stage, op.micro_batch))
          Add(op, from, from, load);
      }
    }
  }

 private:
  const StageNode& Node(int stage) const {
    return schedule_.graph.stages[static_cast<size_t>(stage)];
  }
  // Whether an encoder's stage hands that micro-batch to a text stage on its rank.
  bool Stays(int from, int to, int micro_batch) const {
    const StageNode& node = Node(from);
    return node.next.front() == to && !Node(to).encoder && Node(to).rank == node.rank &&
           (node.lane < 0 || node.lane == lane_) && schedule_.work.Sends(from, micro_batch);
  }
  // What `to` takes, of the boundary behind the encoder's stage.
  void Add(const Op& op, int to, int encoder, const LayerLoad& load) {
    const int64_t bytes = costs_.BoundaryBytes(plan_.LayersOf(encoder).end - 1, load);
    if (each_.emplace(std::pair(to, op.micro_batch), bytes).second) bytes_ += bytes;
  }

  const CostModel& costs_;
  const Plan& plan_;
  const Schedule& schedule_;
  const int lane_;
  std::map<std::pair<int, int>, int64_t> each_;  // by the stage that takes it and micro-batch
  int64_t bytes_ = 0;
};

// The worst moment of the tensor ranks of a lane, which run their own part of the rank's list.
Moment WorstMoment(StageMemory& stages, WaitingFeatures waiting, const Schedule& schedule,
                   const std::vector<LayerLoad>& micro_batches, int pipeline_rank, int lane,
                   int64_t* most_on_host) {
  const std::vector<int> freed_at = FreedAt(schedule, pipeline_rank);
  const std::vector<Op>& list = schedule.ranks[static_cast<size_t>(pipeline_rank)];
  int64_t kept = 0, on_host = 0;
  for (const int stage : schedule.graph.StagesOf(pipeline_rank)) {
    for (int m = 0; m < schedule.own(); ++m) {  // in flight from the step before
      if (!RunsBackward(schedule, stage, m) || RunsForward(schedule, stage, m)) continue;
      const StagePass& pass = stages.Of(stage, micro_batches[static_cast<size_t>(m)]);
      kept += pass.kept, on_host += pass.host;
    }
  }
  Moment worst;
  for (size_t p = 0; p < list.size(); ++p) {
    const Op& op = list[p];
    if (!RunsInLane(schedule.graph, op, lane)) continue;
    const LayerLoad& load = micro_batches[static_cast<size_t>(op.micro_batch)];
    waiting.Before(op);
    if (!IsCompute(op.kind)) {
      waiting.After(op, load);
      continue;
    }
    const int freed = freed_at[p];
    const StagePass& pass = stages.Of(op.stage, load);
    // Or the next step frees it.
    const bool stays = op.micro_batch >= schedule.own() && schedule.graph.HasBackward(op.stage);
    const bool keeps = IsForward(op.kind) && (freed >= 0 || stays);
    const bool frees = freed == static_cast<int>(p);
    if (op.kind == OpKind::kWeightGradient) {
      kept -= pass.deferred;  // nothing is added: no new peak
      continue;
    }
    const bool defers = !IsForward(op.kind) && freed > static_cast<int>(p);
    if (frees || defers) kept -= pass.kept, on_host -= pass.host;
    Moment now = IsForward(op.kind) ? pass.forward : pass.backward;
    if (defers) {
      if (pass.deferred > now.total()) now = {pass.deferred, 0};
      now.kept += kept;
      kept += pass.deferred;
    } else {
      now.kept += kept;
    }
    now.kept += waiting.bytes();
    if (now.total() > worst.total()) worst = now;
    waiting.After(op, load);
    if (keeps) kept += pass.kept, on_host += pass.host;
    *most_on_host = std::max(*most_on_host, on_host);
  }
  return worst;
}

}  // namespace

MemoryForecast ForecastMemory(const CostModel& costs, const Plan& plan, const Schedule& schedule,
                              const std::vector<LayerLoad>& micro_batches, int pipeline_rank) {
  // Of the first lane: all hold the same.
  std::vector<int> own = schedule.graph.StagesOf(pipeline_rank);
  std::erase_if(
      own, [&](int stage) { return schedule.graph.stages[static_cast<size_t>(stage)].lane > 0; });
  MemoryForecast forecast = States(costs, plan, own);
  AddVersions(costs, plan, schedule, own, forecast);
  forecast.communication = BoundaryBuffers(costs, plan, micro_batches, own);
  forecast.gradients += DeferredGradientBytes(costs, plan, schedule, pipeline_rank);
  StageMemory stages(costs, plan);
  Moment worst;
  int64_t on_host = 0;
  for (int lane = 0; lane < plan.encoder_lanes(); ++lane) {
    Moment moment = WorstMoment(stages, {costs, plan, schedule, lane}, schedule, micro_batches,
                                pipeline_rank, lane, &on_host);
    moment.kept += MostFeatureBytes(costs, plan, schedule, micro_batches, pipeline_rank, lane);
    if (moment.total() > worst.total()) worst = moment;
  }
  forecast.host += kPinnedRounding * on_host / 2;
  forecast.activations = worst.kept;
  forecast.temporary = worst.temporary;
  return forecast;
}

}  // namespace equipoise
