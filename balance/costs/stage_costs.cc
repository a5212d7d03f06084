#include "balance/costs/stage_costs.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "balance/costs/collective_time.h"
#include "configs/base/error.h"

namespace equipoise {
namespace {

// Bytes that AdamW reads and writes of a parameter: master and two moments both ways, gradient, and
// the compute copy.
constexpr double kOptimizerBytes = 3 * 8 + 4;

struct OpCosts {
  double forward_s = 0, input_gradient_s = 0, weight_gradient_s = 0, recompute_s = 0;
  double kept_bytes = 0, deferred_bytes = 0, boundary_bytes = 0;
};

struct Tables {
  std::vector<std::vector<OpCosts>> ops;  // [stage][micro-batch]
  std::vector<double> reduce_s;           // [stage]
  double optimizer_s = 0;  // of the slowest rank: the gradient norm makes all wait for it
  std::vector<std::vector<LinkModel>> links;  // [pipeline rank][pipeline rank]

  const OpCosts& At(const Op& op) const {
    return ops[static_cast<size_t>(op.stage)][static_cast<size_t>(op.micro_batch)];
  }
  double Seconds(const Op& op) const;
};

double Tables::Seconds(const Op& op) const {
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kEncoderForward:
      return At(op).forward_s;
    case OpKind::kInputGradient:
      return At(op).recompute_s + At(op).input_gradient_s;
    case OpKind::kWeightGradient:
      return At(op).weight_gradient_s;
    case OpKind::kBackward:
    case OpKind::kEncoderBackward:
      return At(op).recompute_s + At(op).input_gradient_s + At(op).weight_gradient_s;
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

OpCosts CostsOf(const LayerCostTable& table, const Plan& plan, int stage, int load) {
  const auto s = static_cast<size_t>(stage);
  OpCosts sum;
  for (int layer = plan.stage_begins[s]; layer < plan.stage_begins[s + 1]; ++layer) {
    const LayerCostTable::Costs& costs = table.At(layer, load);
    const auto recompute = static_cast<size_t>(RecomputeOf(plan, layer));
    sum.forward_s += costs.times.forward_s;
    sum.input_gradient_s += costs.times.input_gradient_s;
    sum.weight_gradient_s += costs.times.weight_gradient_s;
    sum.recompute_s += costs.recompute_s[recompute];
    sum.kept_bytes += costs.kept_bytes[recompute];
    if (Defers(table.model(), layer)) {
      sum.deferred_bytes += costs.kept_bytes[static_cast<size_t>(Recompute::kNone)];
    }
  }
  const CostModel& model = table.model();
  const LayerSpec& last = model.specs()[static_cast<size_t>(plan.stage_begins[s + 1] - 1)];
  sum.boundary_bytes =
      static_cast<double>(last.BoundaryBytes(table.load(load), model.options().element_bytes));
  return sum;
}

bool HoldsEmbedding(const CostModel& costs, const Plan& plan, int stage) {
  const auto s = static_cast<size_t>(stage);
  for (int layer = plan.stage_begins[s]; layer < plan.stage_begins[s + 1]; ++layer) {
    if (costs.specs()[static_cast<size_t>(layer)].kind == kTokenEmbedding) return true;
  }
  return false;
}

bool HoldsTiedHead(const CostModel& costs, const Plan& plan, int stage) {
  return costs.tied_parameters() > 0 && stage + 1 == plan.num_stages();
}

}  // namespace

StageParameters ParametersOfStage(const CostModel& costs, const Plan& plan, int stage) {
  const auto s = static_cast<size_t>(stage);
  StageParameters sum;
  for (int layer = plan.stage_begins[s]; layer < plan.stage_begins[s + 1]; ++layer) {
    (costs.Trainable(layer) ? sum.trained : sum.frozen) += costs.Parameters(layer);
  }
  if (HoldsTiedHead(costs, plan, stage) && !HoldsEmbedding(costs, plan, stage)) {
    (costs.Trainable(costs.num_layers() - 1) ? sum.trained : sum.frozen) += costs.tied_parameters();
  }
  return sum;
}

int64_t StageKeptBytes(const CostModel& costs, const Plan& plan, int stage, const LayerLoad& load) {
  const auto s = static_cast<size_t>(stage);
  int64_t kept = 0;
  for (int layer = plan.stage_begins[s]; layer < plan.stage_begins[s + 1]; ++layer) {
    kept += costs.KeptBytes(layer, load, RecomputeOf(plan, layer));
  }
  return kept + KeptAtEndBytes(costs, plan, stage, load);
}

int64_t DeferredBytes(const CostModel& costs, const Plan& plan, int stage, const LayerLoad& load) {
  const auto s = static_cast<size_t>(stage);
  int64_t bytes = 0;
  for (int layer = plan.stage_begins[s]; layer < plan.stage_begins[s + 1]; ++layer) {
    if (Defers(costs, layer)) bytes += costs.KeptBytes(layer, load, Recompute::kNone);
  }
  return bytes;
}

int64_t KeptAtEndBytes(const CostModel& costs, const Plan& plan, int stage, const LayerLoad& load) {
  const int last = plan.stage_begins[static_cast<size_t>(stage) + 1] - 1;
  if (!costs.HasBackward(last)) return 0;
  const int64_t element_bytes = costs.options().element_bytes;
  if (HoldsTiedHead(costs, plan, stage)) {
    const bool has_gradient = load.tokens > 0 && costs.Trainable(last);
    return has_gradient && HoldsEmbedding(costs, plan, stage)
               ? element_bytes * costs.tied_parameters()
               : 0;
  }
  const Recompute recompute = RecomputeOf(plan, last);
  if (recompute == Recompute::kFull || recompute == Recompute::kMlp) return 0;
  return costs.specs()[static_cast<size_t>(last)].BoundaryBytes(load, element_bytes);
}

double ReduceSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster, int stage) {
  const double bytes = 4.0 * static_cast<double>(ParametersOfStage(costs, plan, stage).trained);
  const LinkModel link = DataLink(cluster, plan);
  return plan.IsSharded(ShardedState::kOptimizer) ? ReduceScatterSeconds(bytes, plan.data(), link)
                                                  : AllReduceSeconds(bytes, plan.data(), link);
}

double OptimizerSeconds(const CostModel& costs, const Plan& plan, const Cluster& cluster,
                        int pipeline_rank) {
  double parameters = 0;
  for (const int stage : plan.StagesOf(pipeline_rank)) {
    parameters += static_cast<double>(ParametersOfStage(costs, plan, stage).trained);
  }
  const double compute_bytes = static_cast<double>(costs.options().element_bytes) * parameters;
  const int shards = plan.optimizer_shards();
  const double update = costs.optimizer_s_per_parameter() > 0
                            ? costs.optimizer_s_per_parameter() * parameters / shards
                            : (kOptimizerBytes * parameters + compute_bytes) / shards /
                                  (cluster.memory_bytes_per_s * cluster.memory_efficiency);
  if (shards == 1) return update;
  return update + AllGatherSeconds(compute_bytes, plan.data(), DataLink(cluster, plan));
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
  EQUIPOISE_CHECK(costs.options().tensor == plan.tensor(), costs.options().tensor);
  auto tables = std::make_shared<Tables>();
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    std::vector<OpCosts> row;
    row.reserve(loads.size());
    for (const int load : loads) row.push_back(CostsOf(table, plan, stage, load));
    tables->ops.push_back(std::move(row));
    tables->reduce_s.push_back(ReduceSeconds(costs, plan, cluster, stage));
  }
  for (int from = 0; from < plan.pipeline(); ++from) {
    const double optimizer_s = OptimizerSeconds(costs, plan, cluster, from);
    tables->optimizer_s = std::max(tables->optimizer_s, optimizer_s);
    std::vector<LinkModel> row;
    row.reserve(static_cast<size_t>(plan.pipeline()));
    for (int to = 0; to < plan.pipeline(); ++to) {
      row.push_back(PipelineLink(cluster, plan, from, to));
    }
    tables->links.push_back(std::move(row));
  }
  SimulationCosts result;
  result.seconds = [tables](const Op& op) { return tables->Seconds(op); };
  result.bytes = [tables](const Op& op) {
    Op boundary = op;
    boundary.stage = std::min(op.stage, op.peer);
    return tables->At(boundary).boundary_bytes;
  };
  result.link = [tables](int from, int to) {
    return tables->links[static_cast<size_t>(from)][static_cast<size_t>(to)];
  };
  result.kept_bytes = [tables](int stage, int micro_batch) {
    return tables->ops[static_cast<size_t>(stage)][static_cast<size_t>(micro_batch)].kept_bytes;
  };
  result.deferred_bytes = [tables](int stage, int micro_batch) {
    return tables->ops[static_cast<size_t>(stage)][static_cast<size_t>(micro_batch)].deferred_bytes;
  };
  return result;
}

}  // namespace equipoise
