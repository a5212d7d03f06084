#include "trainer/loop/replica.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/yaml/config_json.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/families/unfreeze.h"
#include "models/spec/layer_load.h"
#include "parallel/device.h"
#include "parallel/mesh.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/compute_dtype.h"
#include "trainer/device/memory_stats.h"
#include "trainer/planner/make_plan.h"
#include "trainer/profile/profile_run.h"
#include "trainer/settings/diloco.h"
#include "trainer/settings/offload.h"

namespace equipoise {
namespace {

void RequireTensorRanksTogether(const Mesh& mesh, const std::vector<int>& machines) {
  const auto apart = TensorRanksApart(mesh, machines);
  if (!apart) return;
  throw ConfigError(fmt::format(
      "parallel.tensor: ranks {} and {} share each layer, and they are on two machines; start a "
      "multiple of {} ranks on each machine, one machine after the other, or set it lower",
      apart->first, apart->second, mesh.size(Axis::kTensor)));
}

// Of weights without masters.
std::optional<uint64_t> RoundingSeed(const TrainSection& train) {
  if (train.master != MasterPrecision::kNone) return std::nullopt;
  return static_cast<uint64_t>(train.seed);
}

// Of the largest micro-batch that the limits allow; of one tile and a sample's tokens where they
// are not set, as micro-batches have a number of samples.
LayerLoad FullLoad(const RunConfig& config, const ModelConfig& model, const PackLimits& limits) {
  const int64_t tiles = std::max<int64_t>(1, limits.tiles);
  const int64_t tokens = limits.tokens > 0 ? limits.tokens : config.data.max_tokens;
  return SingleSegment(ImageSpecOf(model).LoadOfTiles(tiles), tokens);
}

}  // namespace

Replica::Replica(RunContext& context, const ModelConfig& config, const Plan& plan,
                 const PackLimits& limits)
    : scaler(context.config.train),
      context_(context),
      config_(config),
      plan_(plan),
      full_(FullLoad(context.config, config, limits)),
      forecast_(context.config, config, plan,
                ThisDevice(context.setup.precision, context.device())),
      accumulation_(Accumulation(context.config, plan)) {
  // The plan rests on this machine's memory and on the profile as well.
  Json items = ConfigToJson(plan);
  items["tiles"] = limits.tiles;
  items["tokens"] = limits.tokens;
  items["global_batch"] = context.config.train.global_batch;
  RequireEqual(context.world(), "the plan", items);
  RequireTensorRanksTogether(whole_mesh(), context.setup.machines);
  if (!forecast_.warning().empty()) spdlog::warn("{}", forecast_.warning());
  Build();
  if (!context.config.train.offload.empty() && context.device().is_cpu())
    spdlog::info("train.offload saves nothing on a CPU, whose memory is the host's");
  if (model_->delays_updates() && plan_.pipeline() == 1 && context.world().size() > 1)
    spdlog::warn(
        "parallel.schedule: {} gains nothing without pipeline ranks, and its updates come late; "
        "set "
        "parallel.pipeline to 2 or more, or another schedule",
        plan_.schedule);
  if (outer_) {
    const std::string islands = DescribeIslands(context.config, context.world().size());
    spdlog::info("DiLoCo: {}, which take {} steps by themselves before each outer step",
                 islands.empty() ? "one island" : islands, context.config.train.diloco.every);
  }
  spdlog::info("{:.2f} M parameters on {} in {} ({}), {}, {} micro-batches, {} threads a rank",
               static_cast<double>(parameter_count()) / 1e6, DeviceKind(context.device()),
               ToString(context.setup.precision), context.config.train.precision,
               DescribePlan(plan), accumulation_, at::get_num_threads());
  if (config.lora.on()) spdlog::info("{}", DescribeLora(config));
  if (!config.unfreeze.empty()) spdlog::info("{}", DescribeUnfrozen(config));
}

void Replica::Build() {
  ParallelModel::Options options = ModelOptionsOf(context_.config, context_.setup);
  options.costs = [this](const std::vector<LayerLoad>& loads) {
    if (!context_.config.parallel.encoder_static) return forecast_.Costs(loads);
    return forecast_.Costs(std::vector<LayerLoad>(loads.size(), full_));
  };
  model_ = std::make_unique<ParallelModel>(config_, plan_, options, context_.islands.mine(),
                                           context_.recorder);
  const TrainSection& train = context_.config.train;
  const std::map<std::string, double> factors = {{"vision", train.lr_factor.vision},
                                                 {"projector", train.lr_factor.projector},
                                                 {"llm", train.lr_factor.llm}};
  const std::vector<Parameter*>& parameters = model_->parameters().parameters();
  std::vector<double> factor;
  factor.reserve(parameters.size());
  for (const Parameter* p : parameters) factor.push_back(factors.at(p->component));
  ZeroOptimizer::Groups groups = model_->optimizer_groups();
  groups.models = context_.islands.all();
  optimizer_ = std::make_unique<ZeroOptimizer>(
      model_->parameters(), DecayGroups(parameters, factor, train.weight_decay),
      AdamWOptions{train.beta1, train.beta2, train.eps, DtypeOf(train.moments),
                   Offloads(train.offload, OffloadedState::kOptimizer), RoundingSeed(train)},
      model_->shards(), groups);
  const DilocoSection& diloco = train.diloco;
  if (diloco.on()) {
    const at::ScalarType dtype = DtypeOf(ParsePrecision(diloco.reduce_dtype));
    outer_ = std::make_unique<OuterOptimizer>(*optimizer_, context_.islands.peers(),
                                              OuterOptions{diloco.lr, diloco.momentum, dtype});
  }
}

void Replica::Rebuild() {
  outer_.reset();
  optimizer_.reset();
  model_.reset();
  ReturnFreeMemory();
  ReturnFreeMemory(context_.device());
  Build();
}

double Replica::TakeOuterStep() {
  const auto start = std::chrono::steady_clock::now();
  outer_->Step();
  Synchronize(context_.device());
  const auto end = std::chrono::steady_clock::now();
  context_.recorder.Add("communication", "outer step", start, end);
  return std::chrono::duration<double>(end - start).count();
}

Mesh Replica::whole_mesh() const {
  return MeshOf({data_ranks(), plan_.pipeline(), plan_.tensor(), plan_.context()});
}

int64_t Replica::parameter_count() const {
  int64_t count = 0;
  for (const LayerSpec& spec : LayerSpecs(config_)) count += spec.parameter_count();
  return count;
}

std::vector<LayerLoad> Replica::LoadsOf(const std::vector<Pack>& packs) const {
  std::vector<LayerLoad> loads;
  for (size_t i = static_cast<size_t>(data_rank()); i < packs.size();
       i += static_cast<size_t>(data_ranks())) {
    loads.push_back(packs[i].load());
  }
  return loads;
}

}  // namespace equipoise
