#include "balance/costs/stage_costs.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "balance/costs/collective_time.h"
#include "configs/base/error.h"

namespace equipoise {
namespace {

constexpr double kGradientBytes = 4;  // of a parameter's gradient, as it is summed

struct OpCosts {
  double forward_s = 0, input_gradient_s = 0, weight_gradient_s = 0, recompute_s = 0;
  double kept_bytes = 0, deferred_bytes = 0, boundary_bytes = 0;
  double backward_s() const { return recompute_s + input_gradient_s + weight_gradient_s; }
};

struct Tables {
  // By stage and column: micro-batches of one load share a column, so that tables stay in a cache.
  std::vector<std::vector<OpCosts>> ops;
  std::vector<int> columns;                // [micro-batch]
  std::vector<double> reduce_s, gather_s;  // [stage]; of its largest layer, which nothing hides
  double slowest = 1;                      // factor on the seconds of passes
  double optimizer_s = 0;  // of the slowest rank: the gradient norm makes all wait for it
  std::vector<std::vector<LinkModel>> links;  // [pipeline rank][pipeline rank]

  const OpCosts& At(int stage, int micro_batch) const {
    const int column = columns[static_cast<size_t>(micro_batch)];
    return ops[static_cast<size_t>(stage)][static_cast<size_t>(column)];
  }
  const OpCosts& At(const Op& op) const { return At(op.stage, op.micro_batch); }
  double Seconds(const Op& op) const;
};

double Tables::Seconds(const Op& op) const {
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kEncoderForward:
      return slowest * At(op).forward_s;
    case OpKind::kInputGradient:
      return slowest * (At(op).recompute_s + At(op).input_gradient_s);
    case OpKind::kWeightGradient:
      return slowest * At(op).weight_gradient_s;
    case OpKind::kBackward:
    case OpKind::kEncoderBackward:
      return slowest * At(op).backward_s();
    case OpKind::kGather:
      return gather_s[static_cast<size_t>(op.stage)];
    case OpKind::kReduce:
      return reduce_s[static_cast<size_t>(op.stage)];
    case OpKind::kOptimizer:
      return optimizer_s;
    default:
      return 0;
  }
}

// Whether a layer leaves products to the second half of a backward.
bool Defers(const CostModel& costs, int layer) {
  return costs.specs()[static_cast<size_t>(layer)].defers_weights && costs.Trainable(layer);
}

// Of a layer on one tensor rank: bytes of the weights that ranks share out, which packed ones are
// not, and the parameters that are trained.
struct ShardedParameters {
  double weight_bytes = 0, trained = 0;
};

ShardedParameters ParametersOfLayer(const CostModel& costs, const Plan& plan, int layer) {
  return {static_cast<double>(PassSharedBytes(costs, layer)),
          static_cast<double>(PassTrainedParameters(costs, plan, layer))};
}

// Collectives of a layer's sharded state beside its passes: weights are gathered for each of the
// two passes (ZeRO 3), gradients are summed to their shards in each backward (ZeRO 2).
struct ShardTraffic {
  CollectiveLoad gather, scatter;
  CollectiveLoad both() const {
    return {gather.seconds + scatter.seconds, gather.bytes + scatter.bytes};
  }
};

ShardTraffic TrafficOf(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                       const ShardedParameters& parameters) {
  ShardTraffic traffic;
  const int shards = plan.shards();
  const LinkModel link = ShardLink(cluster, plan, shards);
  const double host_s = 1 / (shards * cluster.host.link_bytes_per_s);  // of a byte of all ranks
  if (plan.IsSharded(ShardedState::kParameters)) {
    const double bytes = parameters.weight_bytes;
    traffic.gather = {AllGatherSeconds(bytes, shards, link), bytes};
    if (costs.Offloads(plan, ShardedState::kParameters)) traffic.gather.seconds += host_s * bytes;
  }
  if (plan.IsSharded(ShardedState::kGradients)) {
    const double bytes = kGradientBytes * parameters.trained;
    traffic.scatter = {ReduceScatterSeconds(bytes, shards, link), bytes};
    // To the device, and back with the sum.
    if (costs.Offloads(plan, ShardedState::kGradients))
      traffic.scatter.seconds += 2 * host_s * bytes;
  }
  return traffic;
}

// Adds a layer's seconds, with the collectives of its sharded state beside them. The head's
// gradients are made in forward: its backward is these collectives alone.
void AddSeconds(const LayerSeconds& layer, Recompute kind, bool has_backward,
                const ShardTraffic& traffic, const Cluster& cluster, OpCosts& sum) {
  const double again_s = layer.recompute_s[static_cast<size_t>(kind)];
  const double backward_s = again_s + layer.times.backward_s();
  const double longer =
      has_backward ? BesideSeconds(backward_s, traffic.both(), cluster) - backward_s : 0;
  sum.forward_s += BesideSeconds(layer.times.forward_s, traffic.gather, cluster);
  sum.input_gradient_s += layer.times.input_gradient_s + longer;
  sum.weight_gradient_s += layer.times.weight_gradient_s;
  sum.recompute_s += again_s;
}

// What the first stage behind an encoder with lanes waits for at the start of its forward: the
// features that one lane gives to all tensor ranks, as parts that these gather.
double LaneSeconds(const LayerCostTable& table, const Plan& plan, const Cluster& cluster, int stage,
                   int load) {
  if (plan.encoder_lanes() == 1 || plan.ComponentOfStage(stage).encoder) return 0;
  const int first = plan.LayersOf(stage).begin;
  if (first != plan.components.back().first_layer) return 0;
  const auto bytes = static_cast<double>(table.model().BoundaryBytes(first - 1, table.load(load)));
  return bytes > 0 ? 2 * AllGatherSeconds(bytes, plan.tensor(), TensorLink(cluster, plan)) : 0;
}

OpCosts CostsOf(const LayerCostTable& table, const Plan& plan, const Cluster& cluster, int stage,
                int load) {
  const LayerSpan layers = plan.LayersOf(stage);
  OpCosts sum;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    const LayerCostTable::Costs& costs = table.At(layer, load);
    const Recompute recompute = RecomputeOf(plan, layer);
    const ShardTraffic traffic =
        TrafficOf(table.model(), plan, cluster, ParametersOfLayer(table.model(), plan, layer));
    AddSeconds(costs, recompute, table.model().HasBackward(layer), traffic, cluster, sum);
    sum.kept_bytes += costs.kept_bytes[static_cast<size_t>(recompute)];
    if (Defers(table.model(), layer)) {
      sum.deferred_bytes += costs.kept_bytes[static_cast<size_t>(Recompute::kNone)];
    }
  }
  sum.forward_s += LaneSeconds(table, plan, cluster, stage, load);
  const CostModel& model = table.model();
  const RunStyle& style = model.options().style;
  const int64_t bytes = model.BoundaryBytes(layers.end - 1, table.load(load));
  const bool scattered = style.program->scatters_boundaries && !style.sequence_parallel;
  sum.boundary_bytes = static_cast<double>(bytes) / (scattered ? plan.tensor() : 1);
  return sum;
}

// The gather of a stage's largest layer: of the first of a pass nothing runs beside it.
double FirstGatherSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                          int stage) {
  const LayerSpan layers = plan.LayersOf(stage);
  double seconds = 0;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    const ShardTraffic traffic =
        TrafficOf(costs, plan, cluster, ParametersOfLayer(costs, plan, layer));
    seconds = std::max(seconds, traffic.gather.seconds);
  }
  return seconds;
}

bool HoldsEmbedding(const CostModel& costs, const Plan& plan, int stage) {
  const LayerSpan layers = plan.LayersOf(stage);
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    if (costs.specs()[static_cast<size_t>(layer)].kind == kTokenEmbedding) return true;
  }
  return false;
}

bool HoldsTiedHead(const CostModel& costs, const Plan& plan, int stage) {
  return costs.tied_parameters() > 0 && stage + 1 == plan.num_stages();
}

// The sum of gradients over data ranks, with ZeRO 1 to the shards of a group.
CollectiveLoad DataSum(double bytes, const Plan& plan, const Cluster& cluster) {
  const int shards = plan.shards();
  if (shards == 1)
    return {AllReduceSeconds(bytes, plan.same_weights(), DataLink(cluster, plan)), 2 * bytes};
  return {ReduceScatterSeconds(bytes, shards, ShardLink(cluster, plan, shards)), bytes};
}

// The sum of shards over the groups that have a copy of the state each.
CollectiveLoad ShardSum(double bytes, const Plan& plan, const Cluster& cluster) {
  const int shards = plan.shards();
  const double shard = bytes / shards;
  const LinkModel link = CopyLink(cluster, plan, shards);
  return {AllReduceSeconds(shard, plan.same_weights() / shards, link), 2 * shard};
}

// Whether that begins when all shards are there (GradientReducer::SumCopies(),
// ParallelModel::SumsCopiesAtEnd()).
bool SumsShardsAtEnd(const CostModel& costs, const Plan& plan) {
  if (plan.IsSharded(ShardedState::kGradients))
    return costs.Offloads(plan, ShardedState::kGradients);
  return plan.shards() > 1;
}

// Whether a stage is of an encoder of which several copies lie in the bubbles.
bool IsCopied(const Plan& plan, int stage) {
  return plan.encoder_copies() > 1 && plan.ComponentOfStage(stage).encoder;
}

}  // namespace

int64_t PassSharedBytes(const CostModel& costs, int layer) {
  const bool tied = layer + 1 == costs.num_layers();
  return costs.SharedBytes(layer) +
         (tied ? costs.options().element_bytes * costs.tied_parameters() : 0);
}

int64_t PassTrainedParameters(const CostModel& costs, const Plan& plan, int layer) {
  const bool own = layer + 1 == costs.num_layers() && costs.tied_trained() &&
                   !HoldsEmbedding(costs, plan, plan.num_stages() - 1);
  return costs.TrainedParameters(layer) + (own ? costs.tied_parameters() : 0);
}

StageParameters ParametersOfStage(const CostModel& costs, const Plan& plan, int stage) {
  const LayerSpan layers = plan.LayersOf(stage);
  StageParameters sum;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    const int64_t trained = costs.TrainedParameters(layer);
    sum.trained += trained;
    sum.frozen += costs.Parameters(layer) - trained;
    sum.bytes += costs.ParameterBytes(layer);
    sum.shared_bytes += costs.SharedBytes(layer);
  }
  if (HoldsTiedHead(costs, plan, stage) && !HoldsEmbedding(costs, plan, stage)) {
    (costs.tied_trained() ? sum.trained : sum.frozen) += costs.tied_parameters();
    const int64_t bytes = costs.options().element_bytes * costs.tied_parameters();
    sum.bytes += bytes, sum.shared_bytes += bytes;
  }
  return sum;
}

int64_t DeferredBytes(const CostModel& costs, const Plan& plan, int stage, const LayerLoad& load) {
  const LayerSpan layers = plan.LayersOf(stage);
  int64_t bytes = 0;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    if (Defers(costs, layer)) bytes += costs.KeptBytes(layer, load, Recompute::kNone);
  }
  return bytes;
}

int64_t KeptAtEndBytes(const CostModel& costs, const Plan& plan, int stage, const LayerLoad& load) {
  const int last = plan.LayersOf(stage).end - 1;
  if (!costs.HasBackward(last)) return 0;
  if (HoldsTiedHead(costs, plan, stage)) {
    const bool has_gradient = load.tokens > 0 && costs.tied_trained();
    return has_gradient && HoldsEmbedding(costs, plan, stage)
               ? costs.options().element_bytes * costs.tied_parameters()
               : 0;
  }
  const Recompute recompute = RecomputeOf(plan, last);
  if (recompute == Recompute::kMlp || recompute == Recompute::kFull ||
      recompute == Recompute::kFullOffload)
    return 0;
  return costs.BoundaryBytes(last, load);
}

int StateCopies(const Plan& plan) {
  return plan.IsSharded(ShardedState::kOptimizer) ? plan.encoder_copies() : 1;
}

double ReduceSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster, int stage,
                     double backward_s) {
  if (IsCopied(plan, stage)) return 0;
  const auto parameters = static_cast<double>(ParametersOfStage(costs, plan, stage).trained);
  const double bytes = kGradientBytes * parameters;
  const double layers = plan.LayersOf(stage).size();
  // Layer by layer beside the last backward, but for the last one's.
  const auto left_s = [&](const CollectiveLoad& sum) {
    const double longer = BesideSeconds(backward_s, sum, cluster) - backward_s;
    return std::max(sum.seconds / layers, longer);
  };
  if (plan.IsSharded(ShardedState::kGradients)) {
    // The first gather and the last sum have nothing to run beside.
    const double share = parameters / layers;
    const auto element = static_cast<double>(costs.options().element_bytes);
    const double ends_s = TrafficOf(costs, plan, cluster, {element * share, share}).both().seconds;
    if (SumsShardsAtEnd(costs, plan)) return ends_s;
    const CollectiveLoad sum = ShardSum(bytes, plan, cluster);
    return ends_s + (cluster.multiprocessors == 0 ? sum.seconds : left_s(sum));
  }
  const CollectiveLoad sum = DataSum(bytes, plan, cluster);
  const bool beside = costs.options().style.overlaps_reduction && cluster.multiprocessors > 0;
  return beside ? left_s(sum) : sum.seconds;
}

double SumCopiesSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                        int pipeline_rank) {
  double bytes = 0, copied = 0;  // of gradients: of all, of copies of an encoder
  for (const int stage : plan.StagesOf(pipeline_rank)) {
    const auto trained = static_cast<double>(ParametersOfStage(costs, plan, stage).trained);
    bytes += kGradientBytes * trained;
    if (IsCopied(plan, stage)) copied += kGradientBytes * trained;
  }
  double seconds = 0;
  if (copied > 0) {
    // The copies are spread over the whole pipeline.
    const LinkModel link = PipelineLink(cluster, plan, 0, plan.pipeline() - 1);
    seconds += AllReduceSeconds(copied, plan.encoder_copies(), link) +
               DataSum(copied, plan, cluster).seconds;
  }
  if (bytes > 0 && SumsShardsAtEnd(costs, plan)) seconds += ShardSum(bytes, plan, cluster).seconds;
  return seconds;
}

double SumTiedSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                      int pipeline_rank) {
  if (!costs.tied_trained()) return 0;
  const int head = plan.RankOfStage(plan.num_stages() - 1);
  double bytes = kGradientBytes * static_cast<double>(costs.tied_parameters());
  if (plan.IsSharded(ShardedState::kGradients)) bytes /= plan.shards();
  double seconds = 0;
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    const int embedding = plan.RankOfStage(stage);
    if (embedding == head || !HoldsEmbedding(costs, plan, stage)) continue;
    if (pipeline_rank != embedding && pipeline_rank != head) continue;
    seconds =
        std::max(seconds, AllReduceSeconds(bytes, 2, PipelineLink(cluster, plan, embedding, head)));
  }
  return seconds;
}

namespace {

// Seconds of an update in host memory, which all devices of a node share: the processors and the
// copies of a device run beside each other, but for the first copy and the last (of
// AdamW::StepOffloaded()'s pieces); the norm is computed where the gradients are.
double OffloadedSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                        double parameters) {
  constexpr double kPiece = 1 << 22;       // elements
  constexpr double kHostEfficiency = 0.8;  // of the channels' bandwidth, as STREAM has it
  const HostMemory& host = cluster.host;
  OffloadedMoves moves = OffloadedBytesMoved(costs.options().style, costs.options().element_bytes);
  const bool gradients_here = costs.Offloads(plan, ShardedState::kGradients);
  if (gradients_here) moves.from_device = 0;
  if (costs.Offloads(plan, ShardedState::kParameters)) moves.to_device = 0;
  const double copied = moves.from_device + moves.to_device;
  const double device_bytes_per_s =
      kHostEfficiency * host.bytes_per_s / static_cast<double>(cluster.devices_per_node);
  const double update_s = parameters * (moves.processors + copied) / device_bytes_per_s;
  const double copies_s = parameters * copied / host.link_bytes_per_s;
  const double ends_s = std::min(parameters, kPiece) * copied / host.link_bytes_per_s;
  const double norm_s = parameters * kGradientBytes /
                        (gradients_here ? device_bytes_per_s
                                        : cluster.memory_bytes_per_s * cluster.memory_efficiency);
  return norm_s + ends_s + std::max(update_s, copies_s);
}

}  // namespace

double OptimizerSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                        int pipeline_rank) {
  double parameters = 0, copied = 0, layers = 0;
  for (const int stage : plan.StagesOf(pipeline_rank)) {
    const auto trained = static_cast<double>(ParametersOfStage(costs, plan, stage).trained);
    parameters += trained;
    if (plan.ComponentOfStage(stage).encoder) copied += trained;
    layers += plan.LayersOf(stage).size();
  }
  const RunStyle& style = costs.options().style;
  const auto element = static_cast<double>(costs.options().element_bytes);
  const int shards = plan.shards(), copies = StateCopies(plan);
  const double own = (parameters - copied + copied / copies) / shards;
  double seconds = costs.Offloads(plan, ShardedState::kOptimizer)
                       ? OffloadedSeconds(costs, plan, cluster, own)
                   : costs.optimizer_s_per_parameter() > 0
                       ? costs.optimizer_s_per_parameter() * own
                       : OptimizerMovedBytes(style, costs.options().element_bytes) * own /
                             (cluster.memory_bytes_per_s * cluster.memory_efficiency);
  if (copies > 1) {  // the rest of the step waits for it
    const LinkModel link = PipelineLink(cluster, plan, 0, plan.pipeline() - 1);
    seconds += AllGatherSeconds(element * copied / shards, copies, link);
  }
  if (shards == 1 || plan.IsSharded(ShardedState::kParameters)) return seconds;
  const double gather_s =
      AllGatherSeconds(element * parameters, shards, ShardLink(cluster, plan, shards));
  const bool beside = style.overlaps_gather && cluster.multiprocessors > 0;
  return seconds + (beside ? gather_s / layers : gather_s);
}

SimulationCosts StageCosts(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                           const std::vector<LayerLoad>& micro_batches) {
  std::vector<int> all(micro_batches.size());
  std::iota(all.begin(), all.end(), 0);
  return StageCosts(LayerCostTable(costs, micro_batches), plan, cluster, all);
}

SimulationCosts StageCosts(const LayerCostTable& table, const Plan& plan, const Cluster& cluster,
                           const std::vector<int>& loads) {
  const CostModel& costs = table.model();
  EQUIPOISE_CHECK(costs.Fits(plan), costs.options().tensor, " tensor ranks");
  auto tables = std::make_shared<Tables>();
  tables->slowest = StragglerFactor(cluster, plan.num_ranks());
  std::vector<int> different, column_of(static_cast<size_t>(table.num_loads()), -1);
  for (const int load : loads) {
    int& column = column_of[static_cast<size_t>(load)];
    if (column < 0) {
      column = static_cast<int>(different.size());
      different.push_back(load);
    }
    tables->columns.push_back(column);
  }
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    std::vector<OpCosts> row;
    row.reserve(different.size());
    for (const int load : different) row.push_back(CostsOf(table, plan, cluster, stage, load));
    const double backward_s =
        row.empty() ? 0 : row[static_cast<size_t>(tables->columns.back())].backward_s();
    tables->reduce_s.push_back(ReduceSeconds(costs, plan, cluster, stage, backward_s));
    tables->gather_s.push_back(FirstGatherSeconds(costs, plan, cluster, stage));
    tables->ops.push_back(std::move(row));
  }
  const RunStyle& style = costs.options().style;
  // All ranks end their step with the one that takes longest.
  const double tied_s =
      SumTiedSeconds(costs, plan, cluster, plan.RankOfStage(plan.num_stages() - 1));
  for (int from = 0; from < plan.pipeline(); ++from) {
    const double optimizer_s =
        SumCopiesSeconds(costs, plan, cluster, from) + OptimizerSeconds(costs, plan, cluster, from);
    tables->optimizer_s = std::max(tables->optimizer_s, optimizer_s + tied_s);
    std::vector<LinkModel> row;
    row.reserve(static_cast<size_t>(plan.pipeline()));
    for (int to = 0; to < plan.pipeline(); ++to) {
      LinkModel link = PipelineLink(cluster, plan, from, to);
      if (link.bytes_per_s > 0 && !style.overlaps_transfers) {
        link.latency_s += style.program->host_wait_s;
      }
      row.push_back(link);
    }
    tables->links.push_back(std::move(row));
  }
  SimulationCosts result;
  result.blocking_sends = style.program->blocking_transfers && !style.overlaps_transfers;
  result.seconds = [tables](const Op& op) { return tables->Seconds(op); };
  result.bytes = [tables](const Op& op) {
    return tables->At(std::min(op.stage, op.peer), op.micro_batch).boundary_bytes;
  };
  result.link = [tables](int from, int to) {
    return tables->links[static_cast<size_t>(from)][static_cast<size_t>(to)];
  };
  result.kept_bytes = [tables](int stage, int micro_batch) {
    return tables->At(stage, micro_batch).kept_bytes;
  };
  result.deferred_bytes = [tables](int stage, int micro_batch) {
    return tables->At(stage, micro_batch).deferred_bytes;
  };
  return result;
}

}  // namespace equipoise
