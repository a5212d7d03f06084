#include "tests/bench/simulator_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "balance/costs/collective_time.h"
#include "balance/costs/cost_model.h"
#include "balance/costs/memory_model.h"
#include "balance/costs/stage_costs.h"
#include "configs/base/json.h"
#include "models/weights/weights.h"
#include "parallel/comm/gather_text.h"
#include "parallel/timeline.h"
#include "parallel/zero/zero_optimizer.h"
#include "trainer/device/compute_dtype.h"
#include "trainer/device/memory_stats.h"
#include "trainer/run/parallel_model.h"

namespace equipoise::testing {
namespace {

constexpr int kWarmSteps = 1;

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// A model, its optimizer and its micro-batches, on one rank.
class Trainer {
 public:
  Trainer(const BenchSettings& settings, const BenchCase& test, Communicator& world)
      : batches_(BenchBatches(settings, test.mix)), recorder_(world.rank()), world_(world) {
    CpuMemory before = GetCpuMemory();
    base_bytes_ = before.current_bytes;
    MarkCpuMemory();
    ParallelModel::Options options;
    options.part.dtype = DtypeOf(settings.precision);
    options.costs = [&settings, &plan = test.plan](const std::vector<LayerLoad>& loads) {
      const Cluster cluster = MakeCluster({});
      const CostModel costs(settings.model, cluster,
                            {.tensor = plan.tensor(),
                             .element_bytes = ElementBytes(settings.precision),
                             .frozen = {}});
      return StageCosts(costs, plan, cluster, loads);
    };
    model_ = std::make_unique<ParallelModel>(settings.model, test.plan, options, world, recorder_);
    FlatParameters& parameters = model_->parameters();
    InitializeWeights(parameters.parameters(), settings.model, /*seed=*/1);
    const std::vector<double> factors(parameters.parameters().size(), 1.0);
    optimizer_ = std::make_unique<ZeroOptimizer>(
        parameters, DecayGroups(parameters.parameters(), factors, /*weight_decay=*/0.05),
        AdamWOptions(), model_->shards(), model_->optimizer_groups());
    parameters.UpdateCompute();
    optimizer_->TakeMasters();
    const int data = test.plan.data(), mine = model_->groups().at.data;
    for (size_t i = static_cast<size_t>(mine); i < batches_.size();
         i += static_cast<size_t>(data)) {
      own_.push_back(&batches_[i]);
    }
  }

  // Seconds of one optimizer step.
  double Step() {
    Barrier(world_);
    const auto start = Work::Clock::now();
    ModelPart::Pass pass;
    for (const BenchBatch* batch : own_) pass.loads.push_back(batch->load);
    pass.loss_scale = 1e-3;
    pass.batch = [this](int i) -> const MicroBatch& { return own_[static_cast<size_t>(i)]->batch; };
    model_->RunStep(std::move(pass));
    optimizer_->GradientNorm();
    optimizer_->Step(/*lr=*/1e-5);
    Barrier(world_);
    return std::chrono::duration<double>(Work::Clock::now() - start).count();
  }

  // Since the construction, beyond what there was then.
  // Of the last step: seconds in which this rank computed forwards and backwards.
  double busy_s() const { return model_->busy_s(); }
  int64_t peak_bytes() const { return GetCpuMemory().marked_peak_bytes - base_bytes_; }
  const Schedule& schedule() const { return model_->schedule(); }

 private:
  std::vector<BenchBatch> batches_;
  std::vector<const BenchBatch*> own_;
  TimelineRecorder recorder_;
  Communicator& world_;
  int64_t base_bytes_ = 0;
  std::unique_ptr<ParallelModel> model_;
  std::unique_ptr<ZeroOptimizer> optimizer_;
};

struct Prediction {
  double step_s = 0;
  double busy_s = 0;  // of forwards and backwards alone
  int64_t peak_bytes = 0;
};

// Of this rank's pipeline and place in it.
Prediction Predict(const BenchSettings& settings, const BenchCase& test, const Profile& profile,
                   Communicator& world, const Schedule& schedule) {
  ClusterConfig section;
  section.gpus_per_node = world.size();
  const Cluster cluster = WithMeasuredLinks(MakeCluster(section), profile);
  CostModel::Options options;
  options.tensor = test.plan.tensor();
  options.element_bytes = ElementBytes(settings.precision);
  const CostModel costs(settings.model, cluster, options, &profile);
  const MeshCoordinates at = test.plan.mesh.Coordinates(world.rank());
  std::vector<LayerLoad> loads;
  const std::vector<BenchBatch> batches = BenchBatches(settings, test.mix);
  for (size_t i = static_cast<size_t>(at.data); i < batches.size();
       i += static_cast<size_t>(test.plan.data())) {
    loads.push_back(batches[i].load);
  }
  const SimulationCosts simulation = StageCosts(costs, test.plan, cluster, loads);
  const Simulation simulated = Simulate(schedule, simulation);
  double busy_s = 0;
  for (const Span& span : simulated.timeline) {
    if (span.rank == at.pipeline && span.lane == "compute" && span.name != "OPT")
      busy_s += span.end_s - span.start_s;
  }
  return {simulated.step_s, busy_s,
          ForecastMemory(costs, test.plan, schedule, loads, at.pipeline).total()};
}

}  // namespace

void RunBenchCase(const BenchSettings& settings, const BenchCase& test, Communicator& world,
                  BenchRun& run) {
  Trainer trainer(settings, test, world);
  for (int i = -kWarmSteps; i < settings.steps; ++i) {
    const double step_s = trainer.Step();
    if (i < 0) continue;
    run.seconds.push_back(step_s);
    run.busy_s.push_back(trainer.busy_s());
  }
  run.peak_bytes = std::max(run.peak_bytes, trainer.peak_bytes());
  run.schedule = trainer.schedule();
}

BenchResult CompareBenchCase(const BenchSettings& settings, const BenchCase& test,
                             const BenchRun& run, const Profile& profile, Communicator& world) {
  const Prediction predicted = Predict(settings, test, profile, world, run.schedule);
  const Json mine = {{"predicted_step_s", predicted.step_s},
                     {"busy_s", Mean(run.busy_s)},
                     {"predicted_busy_s", predicted.busy_s},
                     {"peak", run.peak_bytes},
                     {"predicted_peak", predicted.peak_bytes}};
  BenchResult result;
  for (const std::string& text : GatherText(world, mine.dump())) {
    const Json rank = Json::parse(text);
    result.predicted_step_s =
        std::max(result.predicted_step_s, rank["predicted_step_s"].get<double>());
    result.busy_s.push_back(rank["busy_s"].get<double>());
    result.predicted_busy_s.push_back(rank["predicted_busy_s"].get<double>());
    result.peak_bytes.push_back(rank["peak"].get<int64_t>());
    result.predicted_peak_bytes.push_back(rank["predicted_peak"].get<int64_t>());
  }
  result.step_s = Mean(run.seconds);
  result.step_s_p10 = Quantile(run.seconds, 0.1);
  result.step_s_p90 = Quantile(run.seconds, 0.9);
  return result;
}

}  // namespace equipoise::testing
