#include "tests/bench/paper_omnibal.h"

#include <algorithm>

#include "balance/costs/collective_time.h"
#include "balance/costs/cost_model.h"
#include "balance/costs/stage_costs.h"
#include "balance/search/plan_search.h"
#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/families.h"
#include "models/stages/stage_layout.h"
#include "parallel/schedule/builders.h"
#include "parallel/schedule/passes.h"
#include "parallel/schedule/simulate.h"

namespace equipoise::testing {
namespace {

constexpr int64_t kSamples = 4;  // of a micro-batch that is not packed
constexpr int kPacks = 256;      // of a step

// As the published code trains them: each sample a row of its own, as long as the longest.
LayerLoad PaddedLoad(const std::vector<SampleSize>& sizes, std::span<const int64_t> samples) {
  LayerLoad load;
  int64_t longest = 0;
  for (const int64_t sample : samples) {
    const SampleSize& size = sizes[static_cast<size_t>(sample)];
    load.patches += size.patches;
    load.patch_pairs += size.patch_pairs;
    load.image_tokens += size.image_tokens;
    longest = std::max<int64_t>(longest, size.tokens);
  }
  const auto rows = static_cast<int64_t>(samples.size());
  load.tokens = load.targets = rows * longest;
  load.token_pairs = static_cast<double>(rows) * CausalPairs(longest);
  return load;
}

// Compute beside communication, with `waiting` of the difference between slowest and mean rank.
struct LayerSpan {
  double mean_s = 0, slowest_s = 0;
  void Add(double seconds, int ranks) {
    mean_s += seconds / ranks;
    slowest_s = std::max(slowest_s, seconds);
  }
  double With(double gather_s, double waiting) const {
    return std::max(gather_s, mean_s + waiting * (slowest_s - mean_s));
  }
};

}  // namespace

const Program& PaperProgram() {
  static const Program kProgram = [] {
    Program program = ThisProgram();
    program.recomputes_elementwise = false;
    return program;
  }();
  return kProgram;
}

Cluster PaperCluster(const PaperConstants& constants) {
  ClusterConfig section;
  section.preset = "a100-80g";
  section.nodes = 8;
  Cluster cluster = MakeCluster(section);
  for (double* share :
       {&cluster.gemm_efficiency, &cluster.attention_efficiency, &cluster.memory_efficiency}) {
    *share *= constants.kernels;
  }
  for (LinkModel* link : {&cluster.intra, &cluster.intra_ring, &cluster.inter}) {
    link->bytes_per_s *= constants.links;
  }
  return cluster;
}

std::vector<SampleSize> ReadHistogram(const std::string& path, const ModelConfig& model) {
  const ImageSpec images = ImageSpecOf(model);
  const Json histogram = ReadJsonFile(path);
  std::vector<SampleSize> sizes;
  for (const Json& row : histogram.at("rows")) {
    const int64_t tokens = row[1];
    const SampleSize size(images.LoadOfTiles(row[0]), tokens, tokens);
    sizes.insert(sizes.end(), row[2].get<size_t>(), size);
  }
  return sizes;
}

PaperBatches MakeBatches(const std::vector<SampleSize>& sizes, GroupMethod method,
                         const ModelConfig& model, int steps) {
  GroupOptions options;
  options.method = method;
  options.patch_unit = ImageSpecOf(model).rows_per_tile;
  options.limits = {9 * options.patch_unit, 4096};
  options.min_patches = options.limits.patches;
  options.min_tokens = 3968;
  options.micro_batch = kSamples;
  options.global_batch = kPacks;
  options.cost = FlopsOfLoad(model, {});
  const EpochGroups epoch = PlanEpoch(sizes, options, /*epoch=*/0);
  PaperBatches batches;
  batches.samples_a_step =
      static_cast<double>(epoch.groups.num_samples()) * kPacks / static_cast<double>(epoch.size());
  for (int step = 0; step < steps; ++step) {
    const auto order = std::span<const int64_t>(epoch.order);
    const auto groups = order.subspan(static_cast<size_t>(step) * kPacks, kPacks);
    std::vector<LayerLoad> loads;
    for (const int64_t group : groups) {
      const std::span<const int64_t> samples = epoch.groups[group];
      loads.push_back(method == GroupMethod::kRandom ? PaddedLoad(sizes, samples)
                                                     : GroupLoad(sizes, samples));
    }
    std::vector<LayerLoad> dealt;
    for (const int64_t place : RowsOfStep(loads, options, /*data_ranks=*/8)) {
      dealt.push_back(loads[static_cast<size_t>(place)]);
    }
    batches.steps.push_back(std::move(dealt));
  }
  return batches;
}

double GpuDays(double step_s, double samples, const PaperBatches& batches) {
  return step_s * samples / batches.samples_a_step * kPaperDevices / 86400;
}

double PipelineStepSeconds(const ModelConfig& model, const Cluster& cluster, const Plan& plan,
                           const PaperBatches& batches) {
  CostModel::Options options;
  options.tensor = plan.tensor();
  const CostModel costs(model, cluster, options);
  const StageLayout stages(model, plan, {});
  double total = 0;
  for (const std::vector<LayerLoad>& step : batches.steps) {
    double slowest = 0;
    for (int rank = 0; rank < plan.data(); ++rank) {
      std::vector<LayerLoad> loads;
      for (size_t i = static_cast<size_t>(rank); i < step.size();
           i += static_cast<size_t>(plan.data())) {
        loads.push_back(step[i]);
      }
      const SimulationCosts seconds = StageCosts(costs, plan, cluster, loads);
      const Schedule schedule = CompleteSchedule(
          BuildSchedule(plan.schedule, stages.graph(), static_cast<int>(loads.size())),
          stages.Work(loads), seconds);
      slowest = std::max(slowest, Simulate(schedule, seconds).step_s);
    }
    total += slowest;
  }
  return total / static_cast<double>(batches.steps.size());
}

double Zero3StepSeconds(const ModelConfig& model, const PaperConstants& constants,
                        const PaperBatches& batches) {
  const Cluster cluster = PaperCluster(constants);
  const CostModel costs(model, cluster, {});
  const LinkModel link = DataLink(cluster, InlinePlan({.data = kPaperDevices}));
  double total = 0;
  for (const std::vector<LayerLoad>& step : batches.steps) {
    for (size_t first = 0; first < step.size(); first += kPaperDevices) {
      for (int layer = 0; layer < costs.num_layers(); ++layer) {
        LayerSpan forward, backward;
        for (size_t i = first; i < first + kPaperDevices; ++i) {
          const LayerTimes times = costs.Times(layer, step[i]);
          forward.Add(times.forward_s, kPaperDevices);
          backward.Add(
              times.backward_s() + costs.RecomputeSeconds(layer, step[i], Recompute::kFull),
              kPaperDevices);
        }
        const double gather_s = AllGatherSeconds(2.0 * static_cast<double>(costs.Parameters(layer)),
                                                 kPaperDevices, link);
        // Backward gathers the weights again and scatters their gradients.
        total += forward.With(gather_s, constants.waiting) +
                 backward.With(2 * gather_s, constants.waiting);
      }
    }
  }
  return total / static_cast<double>(batches.steps.size());
}

Plan PaperPlan(const ModelConfig& model, const Cluster& cluster, const PaperRow& row,
               const PaperBatches& batches) {
  PlanRequest request;
  request.model = model;
  request.cluster = cluster;
  request.ranks = kPaperDevices;
  request.workload.steps = batches.steps;
  request.workload.worst = SingleSegment(ImageSpecOf(model).LoadOfTiles(9), 4096);
  for (const std::vector<LayerLoad>& step : batches.steps) {
    for (const LayerLoad& load : step) {
      LayerLoad& worst = request.workload.worst;
      worst.patches = std::max(worst.patches, load.patches);
      worst.patch_pairs = std::max(worst.patch_pairs, load.patch_pairs);
      worst.image_tokens = std::max(worst.image_tokens, load.image_tokens);
      worst.tokens = std::max(worst.tokens, load.tokens);
    }
  }
  request.partition = row.partition;
  request.recompute = row.recompute;
  if (!row.free) {
    request.style.program = &PaperProgram();
    request.pins.data = request.pins.pipeline = 8;
    request.pins.tensor = request.pins.chunks = 1;
    request.pins.sharded = ShardedState::kOptimizer;
    request.pins.schedule = "1f1b";
  }
  return BestPlan(request, SearchPlans(request)).plan;
}

}  // namespace equipoise::testing
