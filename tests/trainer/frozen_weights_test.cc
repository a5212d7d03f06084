// A frozen weight is held once, in the dtype of the computation: in memory, in the forecast and in
// a checkpoint.

#include <ATen/Parallel.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "balance/costs/cost_model.h"
#include "balance/costs/memory_model.h"
#include "balance/load/partition.h"
#include "configs/base/json.h"
#include "models/families/presets.h"
#include "models/families/resolve_unfreeze.h"
#include "models/families/unfreeze.h"
#include "models/stages/model.h"
#include "models/stages/stage_layout.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"
#include "parallel/comm/communicator.h"
#include "parallel/flat_alignment.h"
#include "parallel/timeline.h"
#include "parallel/zero/zero_optimizer.h"
#include "tests/models/load_of.h"
#include "tests/models/model_support.h"
#include "tests/parallel/run_ranks.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/checkpoint/model_checkpoint.h"
#include "trainer/device/memory_stats.h"
#include "trainer/run/parallel_model.h"
#include "trainer/settings/precision.h"

namespace equipoise {
namespace {

using testing::RandomBatch;
using testing::TinyInternVl;
using Modules = std::vector<std::string>;

struct Mesh {
  int data = 1, pipeline = 1, tensor = 1, zero = 0;
  at::ScalarType dtype = at::kBFloat16;
  at::ScalarType moments = at::kFloat;
  bool masters = true;
  int ranks() const { return data * pipeline * tensor; }
};

Plan PlanOf(const ModelConfig& config, const Mesh& mesh) {
  Plan plan = InlinePlan({mesh.data, mesh.pipeline, mesh.tensor});
  plan.sharded = ShardedStateOf(mesh.zero);
  plan.stage_begins = EvenStages(LayerCosts(config, {}, LoadOf(config, 2, 24)), plan.num_stages());
  return plan;
}

// A model with its optimizer on one rank.
struct Rank {
  Rank(const ModelConfig& config, const Mesh& mesh, const Modules& freeze, Communicator& world)
      : recorder(world.rank()) {
    ParallelModel::Options options;
    options.part.dtype = mesh.dtype;
    options.part.freeze = freeze;
    options.bucket_bytes = 1 << 16;
    adamw.moments = mesh.moments;
    if (!mesh.masters) adamw.rounding_seed = 3;
    model = std::make_unique<ParallelModel>(config, PlanOf(config, mesh), options, world, recorder);
    AddOptimizer(std::vector<double>(list().size(), 1.0), 0.1);
  }
  void AddOptimizer(const std::vector<double>& factors, double decay) {
    optimizer =
        std::make_unique<ZeroOptimizer>(model->parameters(), DecayGroups(list(), factors, decay),
                                        adamw, model->shards(), model->optimizer_groups());
  }
  void Draw(const ModelConfig& config) {
    InitializeWeights(list(), config, /*seed=*/3);
    model->parameters().UpdateCompute();
    optimizer->TakeMasters();
  }
  // The loss before the step.
  double Step(const MicroBatch& batch) {
    ModelPart::Pass pass;
    pass.loads = {LoadOf(model->part().config(), batch.tiles(), batch.tokens())};
    pass.batch = [&](int) -> const MicroBatch& { return batch; };
    pass.loss_scale = 0.05;
    model->RunStep(std::move(pass));
    optimizer->Step(1e-2);
    return model->part().loss();
  }
  const std::vector<Parameter*>& list() const { return model->parameters().parameters(); }

  TimelineRecorder recorder;
  AdamWOptions adamw;
  std::unique_ptr<ParallelModel> model;
  std::unique_ptr<ZeroOptimizer> optimizer;
};

// Bytes of weights, gradients and optimizer state, over all ranks.
int64_t ForecastBytes(const ModelConfig& config, const Mesh& mesh, const Modules& freeze) {
  CostModel::Options options;
  options.tensor = mesh.tensor;
  options.element_bytes = static_cast<int64_t>(c10::elementSize(mesh.dtype));
  options.frozen = freeze;
  options.style.moment_bytes = mesh.moments == at::kByte    ? ElementBytes(MomentPrecision::k8Bit)
                               : mesh.moments == at::kFloat ? 4
                                                            : 2;
  options.style.without_masters = !mesh.masters;
  const CostModel costs(config, MakeCluster({}), options);
  const Plan plan = PlanOf(config, mesh);
  Schedule none;  // of its ops
  none.graph = StageLayout(config, plan, freeze).graph();
  none.ranks.resize(static_cast<size_t>(mesh.pipeline));
  int64_t bytes = 0;
  for (int rank = 0; rank < mesh.pipeline; ++rank) {
    const MemoryForecast forecast = ForecastMemory(costs, plan, none, {}, rank);
    bytes += forecast.parameters + forecast.gradients + forecast.optimizer;
  }
  return bytes * mesh.data * mesh.tensor;
}

// What all ranks of a mesh hold.
double HeldBytes(const ModelConfig& config, const Mesh& mesh, const Modules& freeze) {
  const int64_t before = GetCpuMemory().current_bytes;
  int64_t held = 0;
  RunRanks(mesh.ranks(), [&](Communicator& world) {
    Rank rank(config, mesh, freeze, world);
    rank.Draw(config);
    Barrier(world);
    if (world.rank() == 0) held = GetCpuMemory().current_bytes - before;
    Barrier(world);
  });
  return static_cast<double>(held);
}

TEST_CASE("the bytes of weights, gradients and moments are those forecast", "[frozen][cpu]") {
  CountCpuMemory();
  const ModelConfig config = PresetConfig("quickstart");
  const Mesh mesh = GENERATE(
      Mesh{}, Mesh{1, 1, 1, 0, at::kFloat}, Mesh{2, 1, 1, 1}, Mesh{2}, Mesh{2, 1, 1, 1, at::kFloat},
      Mesh{1, 2}, Mesh{1, 1, 2}, Mesh{2, 1, 1, 1, at::kBFloat16, at::kBFloat16},
      Mesh{1, 1, 1, 0, at::kFloat, at::kBFloat16}, Mesh{2, 1, 1, 1, at::kBFloat16, at::kByte},
      Mesh{1, 1, 1, 0, at::kBFloat16, at::kFloat, false},
      Mesh{2, 1, 1, 1, at::kBFloat16, at::kBFloat16, false});
  const Modules freeze = GENERATE(Modules{}, Modules{"vision"}, Modules{"vision", "llm"});
  INFO(mesh.data << " x " << mesh.pipeline << " x " << mesh.tensor << " ZeRO " << mesh.zero << " "
                 << mesh.dtype << ", " << freeze.size() << " modules frozen");
  // Tables of positions, and what parameters are padded to, are not counted.
  const auto forecast = static_cast<double>(ForecastBytes(config, mesh, freeze));
  CHECK(HeldBytes(config, mesh, freeze) == Approx(forecast).epsilon(0.01));
}

TEST_CASE("so are those of a module of which a part is trained", "[frozen][cpu]") {
  CountCpuMemory();
  const Modules freeze = {"vision", "llm"};
  ModelConfig config = PresetConfig("quickstart");
  ResolveUnfreeze({GENERATE("vision[-1:]", "llm[:1]", "mlp", "lm_head")}, freeze, &config);
  const Mesh mesh = GENERATE(Mesh{}, Mesh{2, 1, 1, 1}, Mesh{1, 2}, Mesh{1, 1, 2},
                             Mesh{1, 1, 1, 0, at::kFloat, at::kBFloat16});
  INFO(mesh.data << " x " << mesh.pipeline << " x " << mesh.tensor << " ZeRO " << mesh.zero << " "
                 << mesh.dtype << ", " << DescribeUnfrozen(config));
  const double held = HeldBytes(config, mesh, freeze);
  CHECK(held == Approx(static_cast<double>(ForecastBytes(config, mesh, freeze))).epsilon(0.01));
}

TEST_CASE("an 8B of which the projector alone is trained takes its weights in bf16",
          "[frozen][cpu]") {
  const int64_t bytes = ForecastBytes(PresetConfig("internvl3-8b"), Mesh{}, {"vision", "llm"});
  CHECK(static_cast<double>(bytes) / (1 << 30) == Approx(15.2).margin(0.3));
}

// Frozen weights beside masters that a learning rate of 0 keeps where they are.
TEST_CASE("frozen weights give the bits of masters that never move", "[frozen][cpu]") {
  at::set_num_threads(1);
  const Mesh mesh = GENERATE(Mesh{}, Mesh{1, 1, 1, 0, at::kFloat});
  const Modules freeze =
      GENERATE(Modules{"vision"}, Modules{"llm"}, Modules{"vision", "llm"}, Modules{"projector"});
  const ModelConfig config = TinyInternVl(GENERATE(false, true));
  const MicroBatch batch = RandomBatch(config, {16, 8}, /*tiles=*/2, /*seed=*/1);
  const auto is_frozen = [&](const Parameter& p) {
    return std::find(freeze.begin(), freeze.end(), p.component) != freeze.end();
  };
  RunRanks(1, [&](Communicator& world) {
    Rank frozen(config, mesh, freeze, world), masters(config, mesh, {}, world);
    std::vector<double> factors;
    for (const Parameter* p : masters.list()) factors.push_back(is_frozen(*p) ? 0.0 : 1.0);
    masters.AddOptimizer(factors, 0.1);
    frozen.Draw(config);
    masters.Draw(config);
    std::vector<double> losses[2];
    for (int step = 0; step < 4; ++step) {
      losses[0].push_back(frozen.Step(batch));
      losses[1].push_back(masters.Step(batch));
    }
    if (losses[0] != losses[1] || losses[0][0] == losses[0][3])
      throw std::runtime_error("other losses");
    std::map<std::string, const Parameter*> by_name;
    std::map<std::string, at::Tensor> saved;
    for (const Parameter* p : masters.list()) by_name[p->name] = p;
    for (const auto& state : masters.optimizer->ToSave()) saved[state.name] = state.values.Get();
    for (const Parameter* p : frozen.list()) {
      const Parameter& other = *by_name.at(p->name);
      if (!p->value.equal(other.value)) throw std::runtime_error(p->name + ": other values");
      if (p->trainable == is_frozen(*p) || p->gradient.defined() != p->trainable)
        throw std::runtime_error(p->name + ": a frozen weight has a gradient");
    }
    for (const auto& state : frozen.optimizer->ToSave()) {
      if (state.parameter->trainable && !state.values.Get().equal(saved.at(state.name)))
        throw std::runtime_error(state.name + ": another master or moment");
    }
  });
}

using Tensors = std::map<std::string, at::Tensor>;

CheckpointContent Content(Tensors tensors) {
  CheckpointContent content{{}, Json::object(), Json::object(), Json::object(), {}};
  for (auto& [name, tensor] : tensors) content.tensors.emplace(name, HeldPiece(tensor));
  return content;
}

// Trains two steps on `mesh` and saves; or goes on from there and returns the losses of two more.
std::vector<double> Train(const Mesh& mesh, const Modules& freeze, const std::string& load,
                          const std::string& save) {
  const ModelConfig config = TinyInternVl(/*large_form=*/false);
  const MicroBatch batch = RandomBatch(config, {16, 8}, /*tiles=*/2, /*seed=*/1);
  std::vector<double> losses;
  RunRanks(mesh.ranks(), [&](Communicator& world) {
    Rank rank(config, mesh, freeze, world);
    if (load.empty()) {
      rank.Draw(config);
    } else {
      const std::string from = FindCheckpoint(load, world);
      ReadModel(from, ReadCheckpointIndex(from, /*verify=*/true), rank.model->parameters(),
                *rank.optimizer);
    }
    for (int step = 0; step < 2; ++step) {
      const double loss = rank.Step(batch);
      if (rank.model->reports_loss() && rank.model->groups().at.data == 0) losses.push_back(loss);
    }
    if (save.empty()) return;
    CheckpointContent content = Content({});
    content.tensors = TensorsToSave(*rank.optimizer);
    content.state.step = content.state.optimizer_step = rank.optimizer->steps();
    SaveCheckpoint(save, content, /*keep=*/1, world);
  });
  return losses;
}

// Every tensor of a checkpoint whose tensors are whole, in the dtype of its file.
Tensors ReadWhole(const std::string& run) {
  const std::string folder = FindCheckpoint(run);
  Tensors tensors;
  for (const auto& [name, pieces] : ReadCheckpointIndex(folder, /*verify=*/true).tensors) {
    tensors[name] = SafetensorsReader(folder + "/" + pieces.at(0).file).Read(name);
  }
  return tensors;
}

TEST_CASE("a checkpoint holds frozen weights as they are computed with", "[frozen][cpu]") {
  at::set_num_threads(1);
  const Modules freeze = {"vision"};
  const ScratchFolder bf16, fp32;
  Train(Mesh{}, freeze, "", bf16.path());
  Train(Mesh{1, 1, 1, 0, at::kFloat}, freeze, "", fp32.path());
  const Tensors rounded = ReadWhole(bf16.path()), exact = ReadWhole(fp32.path());
  CHECK(rounded.size() == exact.size());
  size_t frozen = 0;
  for (const auto& [name, tensor] : rounded) {
    INFO(name);
    const bool is_frozen = name.rfind("vision_tower", 0) == 0;
    frozen += is_frozen ? 1 : 0;
    CHECK(tensor.scalar_type() == (is_frozen ? at::kBFloat16 : at::kFloat));
    CHECK(exact.at(name).scalar_type() == at::kFloat);
    if (is_frozen) CHECK(tensor.equal(exact.at(name).to(at::kBFloat16)));
  }
  CHECK(frozen > 20);
}

TEST_CASE("any mesh and any precision goes on with frozen weights", "[frozen][cpu]") {
  at::set_num_threads(1);
  const Modules freeze = GENERATE(Modules{"vision"}, Modules{"vision", "llm"});
  const Mesh from = GENERATE(Mesh{}, Mesh{1, 2, 2}, Mesh{2, 1, 1, 1});
  const ScratchFolder run, again;
  Train(from, freeze, "", run.path());
  const std::vector<double> there = Train(from, freeze, run.path(), "");
  CHECK(there.size() == 2);
  for (const Mesh& to :
       {Mesh{}, Mesh{1, 2}, Mesh{1, 1, 3}, Mesh{2, 1, 1, 1}, Mesh{2, 2, 1, 1, at::kFloat}}) {
    INFO(to.data << " x " << to.pipeline << " x " << to.tensor << " " << to.dtype);
    const std::vector<double> losses = Train(to, freeze, run.path(), "");
    REQUIRE(losses.size() == there.size());
    for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == Approx(there[i]).epsilon(2e-2));
  }
}

TEST_CASE("a checkpoint with frozen weights in fp32 gives the same bits", "[frozen][cpu]") {
  at::set_num_threads(1);
  const Modules freeze = {"vision", "llm"};
  const ScratchFolder now, before, trained;
  Train(Mesh{}, freeze, "", now.path());
  Tensors tensors = ReadWhole(now.path());
  Train(Mesh{1, 1, 1, 0, at::kFloat}, freeze, "", trained.path());
  for (const auto& [name, exact] : ReadWhole(trained.path())) {
    if (tensors.at(name).scalar_type() == at::kBFloat16) tensors[name] = exact;
  }
  CheckpointContent content = Content(std::move(tensors));
  content.state.step = content.state.optimizer_step = 2;
  RunRanks(1,
           [&](Communicator& world) { SaveCheckpoint(before.path(), content, /*keep=*/1, world); });
  CHECK(Train(Mesh{}, freeze, now.path(), "") == Train(Mesh{}, freeze, before.path(), ""));
}

TEST_CASE("a model without gradients is held once, in its dtype", "[frozen][cpu]") {
  CountCpuMemory();
  const ScratchFolder run;
  Train(Mesh{}, {"vision"}, "", run.path());
  const int64_t before = GetCpuMemory().current_bytes;
  LoadOptions options;
  options.inference = true;
  options.dtype = GENERATE(at::kFloat, at::kBFloat16);
  const ModelConfig config = TinyInternVl(/*large_form=*/false);
  LoadedModel model = BuildModel(config, options);
  LoadCheckpointWeights(*model.parameters, FindCheckpoint(run.path()));
  int64_t padded = 0;
  for (const Parameter* p : model.parameters->parameters()) {
    padded += (p->numel() + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
  }
  const int64_t held = GetCpuMemory().current_bytes - before;
  const auto size = static_cast<int64_t>(c10::elementSize(options.dtype));
  CHECK(held >= padded * size);
  CHECK(held < padded * size + 8192);  // tables of positions
  const Tensors saved = ReadWhole(run.path());
  for (const Parameter* p : model.parameters->parameters()) {
    INFO(p->name);
    CHECK(p->stored().equal(saved.at(p->name).to(options.dtype)));
  }
}

}  // namespace
}  // namespace equipoise
