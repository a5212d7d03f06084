#include "tests/parity/cell.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "balance/costs/cost_model.h"
#include "balance/costs/stage_costs.h"
#include "configs/base/json.h"
#include "models/families/families.h"
#include "models/weights/packed_part.h"
#include "parallel/timeline.h"
#include "parallel/zero/adamw.h"
#include "parallel/zero/grad_norm.h"
#include "parallel/zero/zero_optimizer.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"
#include "tests/parity/cell_batches.h"
#include "tests/parity/copies_agree.h"
#include "trainer/check/whole_tensors.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_checkpoint.h"
#include "trainer/device/compute_dtype.h"
#include "trainer/run/parallel_model.h"

namespace equipoise::testing {
namespace {

// Of the loss in fp16.
constexpr double kLossScale = 4096;

double LossScaleOf(const Cell& cell) { return cell.precision == "fp16" ? kLossScale : 1; }

void SetEach(const std::vector<Parameter*>& parameters, bool nudged) {
  for (Parameter* parameter : parameters) {
    at::Tensor whole = FirstWeight(parameter->name, parameter->whole_shape());
    if (nudged) whole.mul_(Normal(parameter->whole_shape(), 77, 0x1p-24).add_(1));
    const TensorPart& part = parameter->part;
    if (parameter->packs) {
      const MatrixPart mine = {part.split() ? part.dim : -1, part.begin, parameter->shape};
      parameter->packed = PackedPart(whole, Packing::kInt8, mine, at::kCPU, parameter->name);
      continue;
    }
    if (!part.split()) {
      parameter->stored().copy_(whole);
      continue;
    }
    const int64_t there = std::min(parameter->shape[part.dim], part.whole - part.begin);
    parameter->stored().zero_();
    if (there > 0) {
      parameter->stored()
          .narrow(part.dim, 0, there)
          .copy_(whole.narrow(part.dim, part.begin, there));
    }
  }
}

at::Tensor& Whole(std::map<std::string, at::Tensor>& tensors, const Parameter& parameter) {
  at::Tensor& whole = tensors[parameter.name];
  if (!whole.defined()) whole = at::zeros(parameter.whole_shape());
  return whole;
}

ZeroOptimizer MakeOptimizer(const Cell& cell, ParallelModel& model) {
  const std::vector<Parameter*>& parameters = model.parameters().parameters();
  const std::vector<double> factors(parameters.size(), 1.0);
  AdamWOptions options;
  // Above the rounding of gradients that are next to nothing, which would decide the way of their
  // weights else: which ones they are depends on the processor's products.
  options.eps = 1e-6;
  options.on_host = cell.offloaded >= ShardedState::kOptimizer;
  return ZeroOptimizer(model.parameters(), DecayGroups(parameters, factors, 0.1), options,
                       model.shards(), model.optimizer_groups());
}

// What all ranks of a cell have in common.
struct Shared {
  explicit Shared(const Cell& cell)
      : config(ModelOf(cell)),
        plan(CellPlan(cell, config)),
        batches(CellBatches(cell, config)),
        weight(TotalWeight(batches)),
        scale(LossScaleOf(cell)) {}

  ModelConfig config;
  Plan plan;
  std::vector<MicroBatch> batches;
  double weight;
  double scale;  // of the loss, of which its gradients are divided again
};

// The micro-batches of a data rank in a step.
std::vector<const MicroBatch*> BatchesOf(const Cell& cell, const Shared& shared, int data,
                                         int step) {
  const auto count = static_cast<int>(shared.batches.size());
  std::vector<const MicroBatch*> batches;
  for (int i = data; i < count; i += shared.plan.data())
    batches.push_back(
        &shared.batches[static_cast<size_t>((i + (cell.turning ? step : 0)) % count)]);
  return batches;
}

// A data rank's pass of a step, counted from 0; cell.steps is the last one.
ModelPart::Pass PassOf(const Cell& cell, const Shared& shared, int data, int step) {
  ModelPart::Pass pass;
  const auto load = [&shared](const MicroBatch* batch) {
    return SingleSegment(PicturesOf(*batch, ImageSpecOf(shared.config)), batch->tokens());
  };
  std::vector<const MicroBatch*> batches = BatchesOf(cell, shared, data, step);
  for (const MicroBatch* batch : batches) pass.loads.push_back(load(batch));
  const bool ahead = cell.prefetch || DelaysUpdates(cell.schedule);
  if (ahead && step < cell.steps) {
    for (const MicroBatch* batch : BatchesOf(cell, shared, data, step + 1)) {
      pass.next_loads.push_back(load(batch));
      batches.push_back(batch);
    }
  }
  pass.batch = [batches](int i) -> const MicroBatch& { return *batches[static_cast<size_t>(i)]; };
  pass.loss_scale = pass.next_loss_scale = shared.scale / shared.weight;
  return pass;
}

// A step's loss; its gradients are left in the parameters.
double RunPass(const Shared& shared, const ModelPart::Pass& pass, ParallelModel& model,
               ZeroOptimizer& optimizer) {
  model.RunStep(pass);
  if (shared.scale != 1) optimizer.ScaleGradients(1 / shared.scale);
  return model.reports_loss() ? model.part().loss() / shared.scale : 0;
}

// Clipping changes every step; the learning rates differ.
void TrainSteps(int steps, ZeroOptimizer& optimizer, const std::function<double()>& run,
                CellResult& result) {
  for (int i = 0; i < steps; ++i) {
    result.losses.push_back(run());
    const double norm = optimizer.GradientNorm();
    result.norms.push_back(norm);
    optimizer.Step(1e-3 / static_cast<double>(optimizer.steps() + 1), ClipFactor(norm, 0.5 * norm));
  }
}

void LoadOrSet(const Cell& cell, const std::string& folder, ParallelModel& model,
               ZeroOptimizer& optimizer, Communicator& world) {
  // A checkpoint of adapters lies on top of their base.
  const bool adapters = cell.model.find('+') != std::string::npos;
  if (folder.empty() || adapters) SetWeights(model.parameters(), cell.nudged);
  if (folder.empty()) {
    optimizer.TakeMasters();
  } else {
    const std::string from = FindCheckpoint(folder, world);
    ReadModel(from, ReadCheckpointIndex(from, /*verify=*/false), model.parameters(), optimizer);
  }
}

void Save(const std::string& folder, const ZeroOptimizer& optimizer, Communicator& world) {
  CheckpointContent content;
  content.environment = content.sections = content.settings = Json::object();
  content.tensors = TensorsToSave(optimizer);
  content.state.step = content.state.optimizer_step = optimizer.steps();
  SaveCheckpoint(folder, content, /*keep=*/1, world);
}

CellResult RunRankOf(const Cell& cell, const Shared& shared, const CellFolders& folders,
                     at::Device device, Communicator& world) {
  TimelineRecorder recorder(world.rank());
  ParallelModel::Options options;
  options.part.dtype = DtypeOf(ParsePrecision(cell.precision));
  options.part.device = device;
  options.part.freeze = cell.freeze;
  options.part.fp8 = cell.fp8;
  options.part.encoder_stream = cell.encoder_stream;
  options.bucket_bytes = cell.bucket_bytes;
  options.costs = [&shared](const std::vector<LayerLoad>& loads) {
    const Cluster cluster = MakeCluster({});
    RunStyle style;
    style.sequence_parallel = shared.plan.sequence;
    style.context = shared.plan.context();
    const CostModel costs(shared.config, cluster,
                          CostModel::OptionsOf(shared.plan, {.frozen = {}, .style = style}));
    return StageCosts(costs, shared.plan, cluster, loads);
  };
  ParallelModel model(shared.config, shared.plan, options, world, recorder);
  ZeroOptimizer optimizer = MakeOptimizer(cell, model);
  LoadOrSet(cell, folders.load, model, optimizer, world);
  CellResult result;
  auto run = [&, step = 0]() mutable {
    const auto pass = PassOf(cell, shared, model.groups().at.data, step++);
    const double loss = RunPass(shared, pass, model, optimizer);
    result.taken += model.taken();
    return loss;
  };
  result.loss = run();
  const std::vector<Parameter*>& parameters = model.parameters().parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    AddGradient(model, i, Whole(result.gradients, *parameters[i]));
  }
  TrainSteps(cell.steps, optimizer, run, result);
  result.copies_agree = CopiesAgree(model);
  for (const ZeroOptimizer::State& state : optimizer.ToSave()) {
    if (state.name == state.parameter->name)
      AddState(state, Whole(result.weights, *state.parameter));
  }
  if (!folders.save.empty()) Save(folders.save, optimizer, world);
  return result;
}

using Tensors = std::map<std::string, at::Tensor>;

void AddTensors(const Tensors& part, Tensors& whole) {
  for (const auto& [name, tensor] : part) {
    const auto [entry, first] = whole.emplace(name, tensor);
    if (!first) entry->second.add_(tensor);
  }
}

// Puts together what the ranks contribute.
CellResult Join(const std::vector<CellResult>& parts) {
  CellResult whole;
  whole.norms = parts[0].norms;
  whole.taken = parts[0].taken;
  whole.losses.resize(parts[0].losses.size());
  for (const CellResult& part : parts) {
    // By which every rank clips.
    if (part.norms != whole.norms) throw std::logic_error("ranks have different norms");
    whole.copies_agree = whole.copies_agree && part.copies_agree;
    whole.loss += part.loss;
    for (size_t i = 0; i < part.losses.size(); ++i) whole.losses[i] += part.losses[i];
    AddTensors(part.gradients, whole.gradients);
    AddTensors(part.weights, whole.weights);
  }
  return whole;
}

}  // namespace

void SetWeights(FlatParameters& parameters, bool nudged) {
  parameters.SetWeights([nudged](const std::vector<Parameter*>& some) { SetEach(some, nudged); });
}

CellResult RunCell(const Cell& cell, const CellDevices& devices, const CellFolders& folders) {
  const Shared shared(cell);
  std::vector<CellResult> parts(static_cast<size_t>(cell.ranks()));
  RunRanksOver(cell.ranks(), devices.wrap, [&](Communicator& world) {
    parts[static_cast<size_t>(world.rank())] =
        RunRankOf(cell, shared, folders, devices.device(world.rank()), world);
  });
  return Join(parts);
}

const CellResult& Known(const Cell& cell) {
  static std::map<std::string, CellResult> known;
  const std::string name = ToString(cell) + " steps " + std::to_string(cell.steps);
  if (known.count(name) == 0) known[name] = RunCell(cell);
  return known[name];
}

CellResult RunRank(const Cell& cell, Communicator& world) {
  return RunRankOf(cell, Shared(cell), {}, at::kCPU, world);
}

}  // namespace equipoise::testing
