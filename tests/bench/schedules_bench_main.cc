// Steps of every schedule in turn on the ranks of one pipeline, beside what the simulator predicts
// from the ops' measured times. Started by scripts/bench/schedules; rank 0 prints JSON.
//
//   schedules_bench MODEL_DIR ROUNDS MICRO_BATCHES TOKENS TILES

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "balance/costs/cost_model.h"
#include "balance/costs/stage_costs.h"
#include "balance/load/partition.h"
#include "configs/base/json.h"
#include "models/families/families.h"
#include "models/spec/model_config.h"
#include "models/weights/weights.h"
#include "parallel/comm/gather_text.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/simulate.h"
#include "parallel/timeline.h"
#include "tests/models/load_of.h"
#include "tests/models/model_support.h"
#include "trainer/run/parallel_model.h"

namespace equipoise {
namespace {

using Samples = std::map<std::string, std::vector<double>>;  // by the op's text

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

double Seconds(Work::Clock::time_point since) {
  return std::chrono::duration<double>(Work::Clock::now() - since).count();
}

// Seconds of one way of `bytes` between ranks 0 and 1.
double OneWay(Communicator& group, int64_t bytes) {
  at::Tensor buffer = at::zeros({bytes / 4});
  std::vector<double> times;
  for (int i = 0; i < 30 && group.rank() < 2; ++i) {
    const auto start = Work::Clock::now();
    const int peer = 1 - group.rank();
    if (group.rank() == 0) group.Send(buffer, peer).Wait();
    group.Recv(buffer, peer).Wait();
    if (group.rank() == 1) group.Send(buffer, peer).Wait();
    times.push_back(Seconds(start) / 2);
  }
  return times.empty() ? 0 : Quantile(times, 0.5);
}

struct Runner {
  Plan plan;
  TimelineRecorder recorder;
  std::unique_ptr<ParallelModel> model;
  Samples ops;
  std::vector<double> steps, busy;  // seconds
};

struct Settings {
  ModelConfig config;
  int rounds = 20;
  std::vector<MicroBatch> batches;
  std::vector<LayerLoad> loads;
};

// Of a machine that no profile describes, computing in fp32.
SimulationCosts CostsOf(const ModelConfig& config, const Plan& plan,
                        const std::vector<LayerLoad>& loads) {
  const Cluster cluster = MakeCluster({});
  return StageCosts(CostModel(config, cluster, {.element_bytes = 4, .frozen = {}}), plan, cluster,
                    loads);
}

std::unique_ptr<Runner> MakeRunner(const Settings& settings, const ScheduleKind& schedule,
                                   Communicator& world) {
  auto runner =
      std::make_unique<Runner>(Runner{{}, TimelineRecorder(world.rank()), {}, {}, {}, {}});
  runner->plan = InlinePlan({.pipeline = world.size()}, schedule.fewest_chunks, schedule.placement);
  runner->plan.schedule = schedule.name;
  runner->plan.stage_begins =
      EvenStages(LayerCosts(settings.config, {}, settings.loads[0]), runner->plan.num_stages());
  ParallelModel::Options options;
  options.costs = [&config = settings.config, &plan = runner->plan](
                      const std::vector<LayerLoad>& loads) { return CostsOf(config, plan, loads); };
  runner->model = std::make_unique<ParallelModel>(settings.config, runner->plan, options, world,
                                                  runner->recorder);
  InitializeWeights(runner->model->parameters().parameters(), settings.config, 1);
  runner->model->parameters().UpdateCompute();
  return runner;
}

void RunStep(Runner& runner, const Settings& settings, bool keep) {
  runner.recorder = TimelineRecorder(0);
  runner.recorder.Start();
  ModelPart::Pass pass;
  pass.loads = settings.loads;
  pass.loss_scale = pass.next_loss_scale = 1e-3;
  // Steps in the middle of a run, each like the other.
  if (runner.model->delays_updates()) pass.next_loads = settings.loads;
  pass.batch = [&](int i) -> const MicroBatch& {
    return settings.batches[static_cast<size_t>(i) % settings.batches.size()];
  };
  runner.model->RunStep(std::move(pass));
  if (!keep) return;
  runner.steps.push_back(runner.model->step_s());
  runner.busy.push_back(runner.model->busy_s());
  for (const Span& span : runner.recorder.timeline()) {
    if (span.lane == "compute") runner.ops[span.name].push_back(span.end_s - span.start_s);
  }
}

Json Report(Runner& runner, const Settings& settings, const SimulationCosts& link,
            Communicator& world) {
  const Json mine = {{"busy", runner.busy}, {"steps", runner.steps}, {"ops", runner.ops}};
  Samples ops;
  double busy = 0;                                 // mean of the ranks
  std::vector<double> steps(runner.steps.size());  // the slowest rank's
  for (const std::string& text : GatherText(world, mine.dump())) {
    const Json other = Json::parse(text);
    busy += Quantile(other["busy"], 0.5) / world.size();
    for (size_t i = 0; i < steps.size(); ++i) {
      steps[i] = std::max(steps[i], other["steps"][i].get<double>());
    }
    ops.merge(other["ops"].get<Samples>());
  }
  SimulationCosts costs = link;
  std::vector<LayerLoad> loads = settings.loads;
  if (runner.model->delays_updates())
    loads.insert(loads.end(), settings.loads.begin(), settings.loads.end());
  costs.bytes = CostsOf(settings.config, runner.plan, loads).bytes;
  std::vector<double> same_step;  // errors where each step is predicted from its own ops' times
  for (size_t i = 0; i < steps.size(); ++i) {
    costs.seconds = [&](const Op& op) {
      return IsCompute(op.kind) ? ops.at(ToString(op))[i] : 0.0;
    };
    same_step.push_back(Simulate(runner.model->schedule(), costs).step_s / steps[i] - 1);
  }
  costs.seconds = [&](const Op& op) {
    return IsCompute(op.kind) ? Quantile(ops.at(ToString(op)), 0.5) : 0.0;
  };
  const Simulation predicted = Simulate(runner.model->schedule(), costs);
  const double measured = Quantile(steps, 0.5);
  double predicted_bubble = 0;
  for (const double share : predicted.bubble_share) predicted_bubble += share / world.size();
  return {
      {"schedule", runner.plan.schedule},
      {"step_s", measured},
      {"step_s_p10", Quantile(steps, 0.1)},
      {"step_s_p90", Quantile(steps, 0.9)},
      {"predicted_step_s", predicted.step_s},
      {"error", predicted.step_s / measured - 1},
      {"error_same_step", Quantile(same_step, 0.5)},
      {"bubble_share", 1 - busy / measured},
      {"predicted_bubble_share", predicted_bubble},
  };
}

void Bench(int argc, char** argv, Communicator& world) {
  Settings settings;
  settings.config = ReadModelConfig(argv[1]);
  settings.rounds = std::stoi(argv[2]);
  const int micro_batches = std::stoi(argv[3]), tokens = std::stoi(argv[4]);
  const int tiles = argc > 5 && settings.config.has_vision ? std::stoi(argv[5]) : 0;
  for (int i = 0; i < micro_batches; ++i) {
    // Each micro-batch has other tokens and tiles.
    const int64_t length = tokens - i % 4 * tokens / 8, with = std::max(0, tiles - i % 3);
    settings.batches.push_back(
        testing::RandomBatch(settings.config, {length}, with, static_cast<uint64_t>(i)));
    settings.loads.push_back(LoadOf(settings.config, with, length));
  }
  std::map<std::string, std::unique_ptr<Runner>> runners;
  for (const ScheduleKind& kind : ScheduleKinds())
    runners[kind.name] = MakeRunner(settings, kind, world);
  for (int round = -2; round < settings.rounds; ++round) {
    for (const ScheduleKind& kind : ScheduleKinds()) {
      Barrier(world);
      RunStep(*runners[kind.name], settings, round >= 0);
    }
  }
  const double small = OneWay(world, 64), large = OneWay(world, 4 << 20);
  SimulationCosts link;
  link.link = [=](int, int) { return LinkModel{small, (4 << 20) / std::max(1e-9, large - small)}; };
  for (const ScheduleKind& kind : ScheduleKinds()) {
    const Json report = Report(*runners[kind.name], settings, link, world);
    if (world.rank() == 0) std::printf("%s\n", report.dump().c_str());
  }
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s MODEL_DIR ROUNDS MICRO_BATCHES TOKENS [TILES]\n", argv[0]);
    return 2;
  }
  try {
    equipoise::MpiEnvironment mpi;
    at::set_num_threads(1);
    {
      const auto world = equipoise::MakeWorldCommunicator(mpi, equipoise::CommOptions());
      equipoise::Bench(argc, argv, *world);
      equipoise::Barrier(*world);
    }
    mpi.Close();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 5;
  }
}
