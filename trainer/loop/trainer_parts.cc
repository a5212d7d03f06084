#include "trainer/loop/trainer_parts.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <utility>

#include "configs/yaml/config_json.h"
#include "configs/yaml/yaml_writer.h"
#include "data/index/cost_index.h"
#include "models/families/families.h"
#include "models/families/modules.h"
#include "models/stages/model.h"
#include "models/weights/weights.h"
#include "parallel/comm/already_reported_error.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/mpi_environment.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/common/agreement.h"
#include "trainer/common/durable_file.h"
#include "trainer/common/logging.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/memory_stats.h"
#include "trainer/planner/plan_run.h"
#include "trainer/profile/profile_run.h"
#include "trainer/settings/group_settings.h"
#include "trainer/settings/lr_schedule.h"

namespace equipoise {
namespace {

void RequireTensorRanksTogether(const Mesh& mesh, const std::vector<int>& machines) {
  const auto apart = TensorRanksApart(mesh, machines);
  if (!apart) return;
  const std::string size = std::to_string(mesh.size(Axis::kTensor));
  throw ConfigError("parallel.tensor: ranks " + std::to_string(apart->first) + " and " +
                    std::to_string(apart->second) +
                    " share each layer, and they are on two machines; start a multiple of " + size +
                    " ranks on each machine, one machine after the other, or set it lower");
}

// `mine`: a line for each matrix of this rank that has no other element than 0.
void WarnOfZeros(Communicator& world, const std::string& mine, const std::string& folder) {
  std::string all;
  for (const std::string& text : GatherText(world, mine)) all += text;
  if (all.empty()) return;
  spdlog::warn("{}: {} weight matrices hold nothing but zeros, such as {}; is the file whole?",
               folder, std::count(all.begin(), all.end(), '\n'), all.substr(0, all.find('\n')));
}

// "key: value" lines, so that a difference names its key.
Json Lines(const std::string& yaml) {
  Json lines = Json::object();
  std::istringstream text(yaml);
  for (std::string line; std::getline(text, line);) {
    const size_t colon = line.find(": ");
    const size_t key = line.find_first_not_of(' ');
    if (colon != std::string::npos) lines[line.substr(key, colon - key)] = line.substr(colon + 2);
  }
  return lines;
}

}  // namespace

TrainerParts::TrainerParts(const TrainOptions& options, MpiEnvironment& mpi)
    : config(options.config),
      given_limits{config.balance.tiles, config.balance.tokens},
      setup(SetUpRun(config, mpi)),
      device(setup.device),
      world(setup.world.get()),
      activity({.out = [](const std::string& line) { spdlog::info("{}", line); }}),
      recorder(mpi.rank()) {
  if (options.resume == Resume::kNone) RefuseCheckpoints(config.run.dir);
  if (options.dry_run) {
    CheckRunFolder(config.run.dir, *world);
  } else if (!options.trial) {
    OpenFolder(mpi);
  }
  OpenData(/*with_answers=*/!options.trial);
  CheckModel();
  if (!options.trial) FindStart(options);
  if (checkpoint.empty()) CheckFirstWeights();
  if (options.trial) return;
  if (options.dry_run) {
    MakePlanner();  // throws where there is too little data
    if (checkpoint.empty()) return;
    CheckSections(checkpoint, ReadCheckpointIndex(checkpoint, /*verify=*/false).sections,
                  Sections());
    return;
  }
  ChoosePlan();
}

TrainerParts::~TrainerParts() = default;

void TrainerParts::OpenFolder(const MpiEnvironment& mpi) {
  folder = std::make_unique<RunFolder>(config.run.dir, *world);
  SetUpLogging({mpi.rank(), mpi.size(), folder->LogPath(mpi.rank()), false});
  if (mpi.rank() == 0) stop.WatchFile(folder->dir());
}

void TrainerParts::OpenData(bool with_answers) {
  const auto opening = activity.During("opening the data");
  data = std::make_unique<OpenedData>(config, config.data.train, *world);
  RequireEqual(*world, "the cost index", data->index.hash());
  left_out = data->index.size() - data->index.CountDefects()[0];
  if (!config.data.eval.empty()) {
    held_out = std::make_unique<OpenedData>(config, config.data.eval, *world);
  } else if (config.eval.every > 0) {
    spdlog::warn("eval.every: there is no held-out data to measure; set data.eval");
  }
  if (!with_answers) return;
  for (const SourceConfig& source : config.eval.answers)
    answer_sources.push_back(std::make_unique<OpenedData>(config, std::vector{source}, *world));
}

void TrainerParts::CheckModel() const {
  for (const std::string& line : IgnoredSettings(data->model_config)) spdlog::warn("{}", line);
  const int64_t positions = data->model_config.text.max_position_embeddings;
  if (config.data.max_tokens > positions) {
    spdlog::warn(
        "data.max_tokens: {} is beyond the model's max_position_embeddings {}; positions behind "
        "that are new to a pretrained model",
        config.data.max_tokens, positions);
  }
  CheckModules(data->model_config, config.model.freeze, "model.freeze");
  const std::vector<LayerSpec> specs = LayerSpecs(data->model_config);
  if (std::all_of(specs.begin(), specs.end(),
                  [this](const LayerSpec& spec) { return IsAmong(spec, config.model.freeze); })) {
    throw ConfigError("model.freeze: nothing is left to train; take a module out of the list");
  }
}

void TrainerParts::CheckFirstWeights() const {
  if (config.model.init == "random") return;
  if (config.model.hf.empty()) {
    throw ConfigError(
        "model.init: pretrained weights come from model.hf; name it, or set init: random");
  }
  std::vector<Parameter*> parameters;
  const auto layers = BuildLayers(data->model_config);
  for (const auto& layer : layers) {
    for (Parameter* parameter : layer->parameters()) parameters.push_back(parameter);
  }
  AgreeOrThrowDataError(*world,
                        [&] { CheckWeights(parameters, data->model_config, config.model.hf); });
}

void TrainerParts::ChoosePlan() {
  const auto searching = activity.During("searching the plan");
  const SampleCosts costs = CostsOfIndex(data->index, config);
  epoch_samples = costs.epoch_samples();
  const TrainingPlan planned =
      PlanTraining(config, data->model_config, costs, {world->size(), setup.precision});
  prediction = planned.prediction;
  FixPackLimits();
  UsePlan(planned.plan);
}

void TrainerParts::FixPackLimits() {
  if (prediction.global_batch == 0) return;
  config.balance.tiles = prediction.tiles;
  config.balance.tokens = prediction.tokens;
  config.train.global_batch = prediction.global_batch;
}

void TrainerParts::Release() {
  feed.reset();
  optimizer.reset();
  model.reset();
  ReturnFreeMemory();
}

void TrainerParts::RequireMemory(const ScoredPlan& scored) {
  const int rank = scored.plan.mesh().Coordinate(world->rank(), Axis::kPipeline);
  const int64_t bytes = scored.memory[static_cast<size_t>(rank)].total();
  AgreeOrThrowRunError(*world, [&] {
    try {
      at::empty({bytes}, at::TensorOptions(device).dtype(at::kByte));
    } catch (const c10::Error&) {
      throw RunError(fmt::format("out of memory: rank {} cannot get the {:.1f} MiB that it needs",
                                 world->rank(), static_cast<double>(bytes) / (1 << 20)));
    }
  });
}

void TrainerParts::UsePlan(const Plan& given) {
  // The plan rests on this machine's memory and on the profile as well.
  const PlanPrediction limits{
      0, 0, 0, prediction.tiles, prediction.tokens, prediction.global_batch};
  RequireEqual(*world, "the plan", Lines(PlanToYaml(given, limits)));
  RequireTensorRanksTogether(given.mesh(), setup.machines);
  plan = given;
  accumulation = Accumulation(config, plan);
  guard = NonFiniteGuard();
  model = std::make_unique<ParallelModel>(data->model_config, plan, ModelOptionsOf(config, setup),
                                          *world, recorder);
  forecast = std::make_unique<StepForecast>(config, data->model_config, plan,
                                            ThisDevice(setup.precision, device));
  if (!forecast->warning().empty()) spdlog::warn("{}", forecast->warning());
  drift = DriftMonitor(forecast->error_band());
  std::vector<int> layers;
  for (int rank = 0; rank < world->size(); ++rank)
    layers.push_back(plan.mesh().Coordinate(rank, Axis::kPipeline));
  stragglers = StragglerWatch(std::move(layers));
  spdlog::info("{:.2f} M parameters on {} in {} ({}), {}, {} micro-batches, {} threads a rank",
               static_cast<double>(parameter_count()) / 1e6, DeviceKind(device),
               PrecisionName(setup.precision), config.train.precision, DescribePlan(plan),
               accumulation, at::get_num_threads());
  BuildOptimizer();
}

int64_t TrainerParts::parameter_count() const {
  int64_t count = 0;
  for (const LayerSpec& spec : LayerSpecs(data->model_config)) count += spec.parameter_count();
  return count;
}

std::vector<LayerLoad> TrainerParts::Loads(const std::vector<Pack>& packs) const {
  std::vector<LayerLoad> loads;
  for (size_t i = static_cast<size_t>(model->groups().at.data); i < packs.size();
       i += static_cast<size_t>(plan.data)) {
    loads.push_back(packs[i].load());
  }
  return loads;
}

void TrainerParts::BuildOptimizer() {
  const TrainSection& train = config.train;
  const std::map<std::string, double> factors = {{"vision", train.lr_factor.vision},
                                                 {"projector", train.lr_factor.projector},
                                                 {"llm", train.lr_factor.llm}};
  const std::vector<Parameter*>& parameters = model->parameters().parameters();
  std::vector<double> factor;
  factor.reserve(parameters.size());
  for (const Parameter* p : parameters) factor.push_back(factors.at(p->component));
  optimizer = std::make_unique<ZeroOptimizer>(
      model->parameters(), DecayGroups(parameters, factor, train.weight_decay),
      AdamWOptions{train.beta1, train.beta2, train.eps}, model->shards(),
      ZeroOptimizer::Groups{*model->groups().data, *world});
}

void TrainerParts::TakeFirstWeights() {
  const bool random = config.model.init == "random";
  const std::string what = random
                               ? fmt::format("drawing random weights, seed {}", config.train.seed)
                               : "reading weights from " + config.model.hf;
  spdlog::info("{}", what);
  const auto taking = activity.During(what);
  if (random) {
    InitializeWeights(model->parameters().parameters(), data->model_config,
                      static_cast<uint64_t>(config.train.seed));
  } else {
    std::string zeros;
    AgreeOrThrowDataError(*world, [&] {
      for (const std::string& name :
           LoadWeights(model->parameters().parameters(), data->model_config, config.model.hf)) {
        zeros += name + "\n";
      }
    });
    WarnOfZeros(*world, zeros, config.model.hf);
  }
  model->parameters().UpdateCompute();
}

// Of a run that ended before its first checkpoint, or that is trained anew on request.
void TrainerParts::KeepOldMetrics() const {
  const std::string path = folder->Path("metrics.jsonl");
  const std::string aside = SetMetricsAside(path);
  if (!aside.empty())
    spdlog::warn("{}: is of a run that has no checkpoint here; kept as {}", path, aside);
}

void TrainerParts::OpenOutputs(const TrainState& state) {
  trace_until = config.run.trace_steps > 0 ? state.step + config.run.trace_steps : -1;
  Barrier(*world);  // the ranks' clocks begin together
  recorder = TimelineRecorder(world->rank());
  if (trace_until > 0) recorder.Start();
  quarantine = std::make_unique<Quarantine>(folder->Path("quarantine.jsonl"));
  if (world->rank() != 0) return;
  QuarantineDefects(*data, *quarantine);
  if (left_out > 0) {
    spdlog::warn(
        "{} of {} records cannot be used and are left out ({}), see {}; once they are mended, "
        "`equipoise data CONFIG index` takes them into a new run",
        left_out, data->index.size(), data->index.DescribeDefects(),
        folder->Path("quarantine.jsonl"));
  }
  WriteFileDurably(folder->Path("config.yaml"), WriteConfig(config));
  WriteFileDurably(folder->Path("plan.yaml"), PlanToYaml(plan, prediction));
  const std::string description = ModelDescriptionFolder(folder->dir());
  if (!config.model.hf.empty()) CopyModelDescription(config.model.hf, description);
  if (!config.data.tokenizer.empty()) CopyModelDescription(config.data.tokenizer, description);
  WriteFileDurably(description + "/config.json", ToHuggingFace(data->model_config).dump(2) + "\n");

  if (!HasCheckpoints(folder->dir())) KeepOldMetrics();
  CutMetrics(folder->Path("metrics.jsonl"), state.step);
  metrics = std::make_unique<MetricsWriter>(folder->Path("metrics.jsonl"));
  WriteShown("tensorboard", [&] {
    tensorboard = std::make_unique<TensorBoardWriter>(folder->Path("tensorboard"), state.step + 1);
  });
  ProgressOptions shown;
  shown.steps = config.train.steps;
  shown.live = StderrIsTerminal();
  shown.balance = plan.data > 1;
  shown.columns = StderrColumns;
  shown.live_out = [](const std::string& text) { std::fputs(text.c_str(), stderr); };
  shown.line_out = [](const std::string& text) { spdlog::info("{}", text); };
  progress = std::make_unique<Progress>(shown);
}

EpochPacker TrainerParts::MakePlanner() const {
  EpochPacker::Options options;
  options.groups = GroupOptionsOf(config, FlopsOfLoad(data->model_config, config.model.freeze));
  if (prediction.tokens > 0) options.groups.limits = {prediction.tiles, prediction.tokens};
  options.window = config.balance.window;
  options.data_ranks = plan.data;
  options.loss = ParseLossWeight(config.train.loss);
  options.repeat = SourceRepeats(config.data.train);
  return EpochPacker(&data->index, options);
}

// Of the epoch that begins or goes on, for the log.
void TrainerParts::ShowBalance(int64_t epoch) const {
  const EpochPacker planner = MakePlanner();
  const GroupOptions& groups = planner.groups();
  const EpochSummary ours = planner.Summarize(epoch);
  const EpochSummary random =
      planner.Summarize(epoch, RandomBaseline(groups, ours.samples_per_group()));
  const std::string limits = DescribeLimits(groups.limits, given_limits, config.data.max_tokens);
  spdlog::info("{}", DescribeMicroBatches(ours, groups, limits));
  spdlog::info("{}", DescribeBalance(ours, random, groups, plan.data));
  if (ours.oversize > 0) {
    spdlog::warn(
        "{} samples an epoch are beyond balance.tiles {} or balance.tokens {} and left out",
        ours.oversize, groups.limits.tiles, groups.limits.tokens);
  }
}

void TrainerParts::StartFeed(const TrainState& state) {
  first_step = state.step;
  const auto forming = activity.During("forming the micro-batches of the epoch");
  if (folder && world->rank() == 0) ShowBalance(state.position.epoch);
  feed = std::make_unique<StepFeed>(
      &data->dataset, MakePlanner(), state.position,
      StepFeed::Options{model->groups().at.data, plan.data, config.data.threads,
                        config.data.prefetch, model->part().needs_pictures()});
}

StepSums TrainerParts::AllReduceForward(const StepSums& sums) {
  if (stop.Ending()) throw AlreadyReportedError("mpirun is ending the job");
  at::Tensor added = at::empty({5}, at::kDouble), longest = at::empty({3}, at::kDouble);
  auto* v = added.data_ptr<double>();
  v[0] = sums.loss, v[1] = sums.weight, v[2] = sums.bad_samples, v[3] = stop.Requested() ? 1 : 0;
  v[4] = sums.busy_s / world->size();
  auto* most = longest.data_ptr<double>();
  most[0] = sums.data_wait_s, most[1] = sums.span_s, most[2] = sums.predicted_s;
  Work first = world->AllReduce(added, ReduceOp::kSum);
  Work second = world->AllReduce(longest, ReduceOp::kMax);
  first.Wait();
  second.Wait();
  return {v[0], v[1], v[2], most[0], v[3], v[4], most[1], most[2], sums.times};
}

}  // namespace equipoise
