#include "tests/parity/cell.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "balance/costs/cost_model.h"
#include "balance/costs/stage_costs.h"
#include "balance/load/partition.h"
#include "configs/base/json.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "models/families/resolve_unfreeze.h"
#include "models/spec/layer_spec.h"
#include "models/weights/packed_part.h"
#include "parallel/schedule/builders.h"
#include "parallel/timeline.h"
#include "parallel/zero/adamw.h"
#include "parallel/zero/grad_norm.h"
#include "parallel/zero/zero_optimizer.h"
#include "tests/models/load_of.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"
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

// Any mix of pictures, text and nothing; a whole step may lack either.
std::vector<MicroBatch> RandomBatches(const Cell& cell, const ModelConfig& config) {
  std::mt19937 dice(static_cast<unsigned>(std::stoul(cell.modality.substr(6))));
  const unsigned pictures = dice() % 4, text = 1 + dice() % 4;  // out of 4
  std::vector<MicroBatch> batches;
  for (int i = 0; i < cell.micro_batches; ++i) {
    // The first one always has targets.
    const bool empty = i > 0 && dice() % 4 >= text;
    const bool with_tiles = config.has_vision && !empty && dice() % 4 < pictures;
    const int64_t tiles = with_tiles ? 1 + static_cast<int64_t>(dice() % 3) : 0;
    std::vector<int64_t> lengths;
    if (!empty)
      lengths = {14 + static_cast<int64_t>(dice() % 9), 1 + static_cast<int64_t>(dice() % 7)};
    batches.push_back(RandomBatch(config, lengths, tiles, dice()));
  }
  return batches;
}

std::vector<MicroBatch> FloatBatches(const Cell& cell, const ModelConfig& config) {
  if (cell.modality.rfind("random", 0) == 0) return RandomBatches(cell, config);
  std::vector<MicroBatch> batches;
  for (int i = 0; i < cell.micro_batches; ++i) {
    if (cell.modality == "balanced") {  // each asks the same of every stage
      batches.push_back(RandomBatch(config, {16, 8}, config.has_vision ? 2 : 0, 900 + i));
      continue;
    }
    int64_t tiles = 0;
    const bool blank = cell.modality == "blank";
    if (config.has_vision && (cell.modality == "pictures" || cell.modality == "long" || blank))
      tiles = 1 + i % 3;
    // Every second one has pictures, and one of four no tokens at all.
    if (config.has_vision && cell.modality == "mixed") tiles = i % 2 == 1 ? 1 + i % 3 : 0;
    const bool empty = cell.modality == "mixed" && i % 4 == 2;
    std::vector<int64_t> lengths;
    if (!empty) lengths = {14 + 3 * (i % 4), 5 + i % 2};
    if (cell.modality == "long") lengths = {70 + 9 * (i % 3), 7, 40};
    batches.push_back(RandomBatch(config, lengths, tiles, 900 + i));
    // As of samples whose pictures could not be read: every second one has no targets.
    if (blank && i % 2 == 1) batches.back().targets.fill_(-100);
  }
  return batches;
}

// With pictures as bytes, as loaders give them.
std::vector<MicroBatch> CellBatches(const Cell& cell, const ModelConfig& config) {
  std::vector<MicroBatch> batches = FloatBatches(cell, config);
  for (MicroBatch& batch : batches) {
    if (batch.tiles() == 0) continue;
    batch.pixel_values = batch.pixel_values.mul(60).add(128).clamp(0, 255).to(at::kByte);
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    batches[i].noise = i + 1;
    batches[i].samples = {static_cast<int64_t>(i)};
  }
  return batches;
}

double TotalWeight(const std::vector<MicroBatch>& batches) {
  double sum = 0;
  for (const MicroBatch& batch : batches) {
    if (batch.tokens() == 0) continue;
    sum += batch.target_weights.masked_select(batch.targets.ne(-100)).sum().item<double>();
  }
  return sum;
}

std::vector<Recompute> CellRecompute(const Cell& cell, const ModelConfig& config) {
  std::vector<Recompute> recompute;
  const bool random = cell.recompute.rfind("random", 0) == 0;
  std::mt19937 dice(random ? static_cast<unsigned>(std::stoul(cell.recompute.substr(6))) : 0);
  for (const LayerSpec& layer : LayerSpecs(config)) {
    const bool named = cell.recompute.find(ComponentName(layer.component)) != std::string::npos;
    if (random) {
      recompute.push_back(static_cast<Recompute>(dice() % kRecomputeKinds));
    } else if (ParseEnum<Recompute>(cell.recompute) && cell.recompute != "none") {
      recompute.push_back(ParseEnum<Recompute>(cell.recompute).value());
    } else {
      recompute.push_back(named ? Recompute::kFull : Recompute::kNone);
    }
  }
  return recompute;
}

// Those of an encoder in the bubbles: a step ahead only what is frozen can run.
int EncoderLayers(const Cell& cell, const std::vector<LayerSpec>& specs) {
  const int all = NumEncoderLayers(specs);
  int frozen = 0;
  while (frozen < all && !IsTrained(specs[static_cast<size_t>(frozen)], cell.freeze)) ++frozen;
  return cell.prefetch ? frozen : all;
}

}  // namespace

Plan CellPlan(const Cell& cell, const ModelConfig& config) {
  const ScheduleKind& kind = *FindSchedule(cell.schedule);
  const Degrees degrees{cell.data, cell.pipeline, cell.tensor, cell.context};
  const int chunks = cell.chunks > 0 ? cell.chunks : kind.fewest_chunks;
  const std::vector<LayerSpec> specs = LayerSpecs(config);
  Plan plan = InlinePlan(degrees, chunks, kind.placement);
  if (cell.encoder == EncoderPlacement::kDisaggregated) {
    plan = DisaggregatedPlan(degrees, cell.encoder_ranks, NumEncoderLayers(specs), chunks,
                             kind.placement);
  } else if (FillsBubbles(cell.encoder)) {
    plan = PlanInBubbles(degrees,
                         {cell.encoder, cell.encoder_ranks, cell.encoder_chunks,
                          EncoderLayers(cell, specs), cell.encoder_tensor},
                         chunks, kind.placement);
  }
  plan.schedule = cell.schedule;
  plan.sharded = ShardedStateOf(cell.zero);
  plan.zero_ranks = cell.zero_ranks;
  plan.offloaded = cell.offloaded;
  plan.sequence = cell.sequence;
  plan.stage_begins = cell.stage_begins;
  plan.recompute = CellRecompute(cell, config);
  if (plan.stage_begins.empty()) {
    plan.stage_begins = EvenStages(LayerCosts(config, cell.freeze, LoadOf(config, 2, 24)),
                                   CutSpans(plan, static_cast<int>(specs.size())));
  }
  return plan;
}

Cell InOneProcess(Cell cell) {
  cell.data = cell.pipeline = cell.tensor = cell.context = 1;
  cell.encoder = EncoderPlacement::kInline;
  cell.encoder_ranks = cell.encoder_chunks = 1;
  cell.encoder_tensor = cell.zero = cell.zero_ranks = 0;
  cell.offloaded = ShardedState::kNone;
  cell.sequence = cell.prefetch = cell.encoder_stream = false;
  if (!DelaysUpdates(cell.schedule)) cell.schedule = "gpipe";
  cell.chunks = 0;
  cell.stage_begins.clear();
  cell.recompute = "none";
  return cell;
}

void SetWeights(FlatParameters& parameters, bool nudged) {
  parameters.SetWeights([nudged](const std::vector<Parameter*>& some) { SetEach(some, nudged); });
}

Cell WithoutPipeline(Cell cell) {
  const Cell spread = cell;
  cell = InOneProcess(cell);
  cell.data = spread.data, cell.tensor = spread.tensor, cell.context = spread.context;
  cell.sequence = spread.sequence;
  return cell;
}

const CellResult& Known(const Cell& cell) {
  static std::map<std::string, CellResult> known;
  const std::string name = ToString(cell) + " steps " + std::to_string(cell.steps);
  if (known.count(name) == 0) known[name] = RunCell(cell);
  return known[name];
}

bool WithinRounding(const Cell& cell, const CellErrors& errors, const CellResult& one) {
  const CellErrors bounds = BoundsOf(cell);
  const bool alone = cell.tensor == 1 && cell.context == 1, fp32 = cell.precision == "fp32";
  if (errors.Within(bounds) || alone || (fp32 && !cell.modality.starts_with("random")))
    return errors.Within(bounds);
  Cell exact = InOneProcess(cell);
  exact.nudged = fp32;
  if (fp32) return errors.Within(AtLeast(bounds, Compare(RunCell(exact), one), 1));
  exact.precision = "fp32";
  exact.fp8 = false;
  return errors.Within(AtLeast(bounds, Compare(one, Known(exact)), 2));
}

namespace {

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
    whole.copies_agree = whole.copies_agree && part.copies_agree;
    whole.loss += part.loss;
    for (size_t i = 0; i < part.losses.size(); ++i) whole.losses[i] += part.losses[i];
    AddTensors(part.gradients, whole.gradients);
    AddTensors(part.weights, whole.weights);
  }
  return whole;
}

}  // namespace

std::string ToString(const Cell& cell) {
  std::string text = cell.model + " " + cell.modality + " data " + std::to_string(cell.data) +
                     " pipeline " + std::to_string(cell.pipeline) + " tensor " +
                     std::to_string(cell.tensor) + " " + cell.schedule;
  if (cell.chunks > 0) text += " x " + std::to_string(cell.chunks);
  if (cell.zero > 0) text += " ZeRO-" + std::to_string(cell.zero);
  if (cell.zero_ranks > 0) text += fmt::format(" on {}", cell.zero_ranks);
  if (cell.sequence) text += " sequence";
  if (cell.context > 1) text += fmt::format(" context {}", cell.context);
  if (cell.encoder != EncoderPlacement::kInline) {
    text += fmt::format(" encoder {} on {}", ToString(cell.encoder), cell.encoder_ranks);
    if (cell.encoder_chunks > 1) text += fmt::format(" x {}", cell.encoder_chunks);
    if (cell.encoder_tensor > 0) text += fmt::format(" tensor {}", cell.encoder_tensor);
  }
  for (size_t s = 0; s + 1 < cell.stage_begins.size(); ++s) {
    text += (s == 0 ? " layers " : "+") +
            std::to_string(cell.stage_begins[s + 1] - cell.stage_begins[s]);
  }
  text += " M " + std::to_string(cell.micro_batches) + " " + cell.precision;
  if (cell.fp8) text += " fp8";
  for (const std::string& module : cell.freeze) text += " frozen " + module;
  for (const std::string& part : cell.unfreeze) text += " but " + part;
  if (cell.recompute != "none") text += " recompute " + cell.recompute;
  if (cell.offloaded != ShardedState::kNone)
    text += fmt::format(" offloaded {}", ZeroStage(cell.offloaded));
  if (cell.turning) text += " turning";
  if (cell.prefetch) text += " prefetch";
  if (cell.encoder_stream) text += " stream";
  return text;
}

ModelConfig CellModel(const std::string& name) {
  if (const size_t plus = name.find('+'); plus != std::string::npos) {
    const std::string kind = name.substr(plus + 1);
    ModelConfig config = CellModel(name.substr(0, plus));
    config.lora.targets = {"all-linear"};
    config.lora.rank = 4;
    config.lora.alpha = 8;
    config.lora.dora = kind == "dora";
    config.lora.dropout = kind == "dropout" ? 0.25 : 0;
    if (kind == "vocabulary") config.lora.train = {"embed_tokens"};
    if (kind == "int8") config.quantize = {Packing::kInt8, {"vision", "llm"}};
    return config;
  }
  if (name == "internvl-qwen2") return TinyInternVl(/*large_form=*/false);
  if (name == "internvl-llama") return TinyInternVl(/*large_form=*/true);
  if (name == "internvl-drop_path") {
    ModelConfig config = TinyInternVl(/*large_form=*/false);
    config.vision.drop_path_rate = 0.5;
    return config;
  }
  if (name == "llava-llama") return TinyLlava();
  if (name == "llava_next-llama") return TinyLlavaNext();
  if (name == "llava_onevision-qwen2") return TinyLlavaOnevision();
  if (name == "qwen2_vl") return TinyQwenVl(/*windows=*/false);
  if (name == "qwen2_5_vl") return TinyQwenVl(/*windows=*/true);
  if (name == "qwen3_vl") return TinyQwen3Vl();
  if (name.starts_with("internvl-")) {  // another decoder behind InternViT-300M's form
    ModelConfig config = TinyInternVl(/*large_form=*/false);
    config.text = TinyText(name.substr(name.find('-') + 1), /*tied=*/false).text;
    return config;
  }
  return TinyText(name.substr(0, name.find('-')), name == "qwen2-tied");
}

// Components that the cell freezes have no adapters.
ModelConfig ModelOf(const Cell& cell) {
  ModelConfig config = CellModel(cell.model);
  config.lora.without = cell.freeze;
  ResolveUnfreeze(cell.unfreeze, cell.freeze, &config);
  return config;
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

CellResult RunRank(const Cell& cell, Communicator& world) {
  return RunRankOf(cell, Shared(cell), {}, at::kCPU, world);
}

}  // namespace equipoise::testing
