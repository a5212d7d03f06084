// OmniBal's balance and Optimus' bubbles on the shapes of OmniBal's paper, side by side and
// together, in the simulator. Started by scripts/bench/paper_both, which prints the table; here a
// JSON object a line.
//
//   paper_both HISTOGRAM STEPS       STEPS: of an epoch that are simulated

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "balance/costs/stage_costs.h"
#include "balance/search/plan_fit.h"
#include "balance/search/plan_search.h"
#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/presets.h"
#include "parallel/schedule/simulate.h"
#include "tests/bench/paper_omnibal.h"

namespace equipoise::testing {
namespace {

// InternViT-6B before LLaMA-3-70B.
ModelConfig With70B() {
  ModelConfig model = PresetConfig("internvl2-40b");
  model.text.hidden_size = 8192;
  model.text.intermediate_size = 28672;
  model.text.num_hidden_layers = 80;
  model.text.num_attention_heads = 64;
  model.text.head_dim = 128;
  model.text.vocab_size = 128265;
  return model;
}

// What of the two papers a row has.
struct Row {
  const char* name;
  GroupMethod packs;
  PartitionRule partition;
  RecomputeRule recompute;
  bool bubbles;
};
constexpr Row kRows[] = {
    {"neither", GroupMethod::kRandom, PartitionRule::kParameters, RecomputeRule::kFull, false},
    {"OmniBal's packs", GroupMethod::kIsf, PartitionRule::kParameters, RecomputeRule::kFull, false},
    {"OmniBal", GroupMethod::kIsf, PartitionRule::kBalanced, RecomputeRule::kAdaptive, false},
    {"Optimus", GroupMethod::kRandom, PartitionRule::kBalanced, RecomputeRule::kAdaptive, true},
    {"both", GroupMethod::kIsf, PartitionRule::kBalanced, RecomputeRule::kAdaptive, true},
    {"OmniBal, isf+", GroupMethod::kIsfPlus, PartitionRule::kBalanced, RecomputeRule::kAdaptive,
     false},
    {"both, isf+", GroupMethod::kIsfPlus, PartitionRule::kBalanced, RecomputeRule::kAdaptive,
     true}};

PlanRequest RequestOf(const ModelConfig& model, const Row& row, const PaperBatches& batches,
                      int tensor) {
  PlanRequest request;
  request.model = model;
  request.cluster = PaperCluster({});
  request.ranks = kPaperDevices;
  request.workload.steps = batches.steps;
  LayerLoad& worst = request.workload.worst;
  for (const std::vector<LayerLoad>& step : batches.steps) {
    for (const LayerLoad& load : step) {
      worst.patches = std::max(worst.patches, load.patches);
      worst.patch_pairs = std::max(worst.patch_pairs, load.patch_pairs);
      worst.image_tokens = std::max(worst.image_tokens, load.image_tokens);
      worst.tokens = std::max(worst.tokens, load.tokens);
      worst.targets = std::max(worst.targets, load.targets);
      worst.token_pairs = std::max(worst.token_pairs, load.token_pairs);
    }
  }
  request.partition = row.partition;
  request.recompute = row.recompute;
  request.style.program = &PaperProgram();
  request.pins.data = 8 / tensor;
  request.pins.pipeline = 8;
  request.pins.tensor = tensor;
  request.pins.chunks = 1;
  request.pins.sharded = ShardedState::kOptimizer;
  request.pins.schedule = "1f1b";
  if (row.bubbles) request.pins.encoder.placement = EncoderPlacement::kOptimus;
  request.keep = 1;
  return request;
}

// What the ranks of all steps do, each step as long as its slowest data rank.
struct Times {
  double step_s = 0;  // mean
  double idle = 0;    // share of all ranks' time
};

Times TimesOf(const PlanRequest& request, const Plan& plan) {
  const PlanFitter fitter(request, plan);
  Times times;
  double busy_s = 0, all_s = 0;
  for (const std::vector<LayerLoad>& step : request.workload.steps) {
    double slowest = 0;
    for (int rank = 0; rank < plan.data(); ++rank) {
      std::vector<LayerLoad> loads;
      for (size_t i = static_cast<size_t>(rank); i < step.size();
           i += static_cast<size_t>(plan.data())) {
        loads.push_back(step[i]);
      }
      const SimulationCosts costs = StageCosts(fitter.costs(), plan, request.cluster, loads);
      const Simulation run = SimulateTimes(ComputeSchedule(request, plan, loads, costs), costs);
      slowest = std::max(slowest, run.step_s);
      for (const double busy : run.busy_s) busy_s += busy;
    }
    times.step_s += slowest / static_cast<double>(request.workload.steps.size());
    all_s += slowest * plan.data() * plan.pipeline();
  }
  times.idle = 1 - busy_s / all_s;
  return times;
}

// A row's line; where no plan fits the memory, why.
Json LineOf(const ModelConfig& model, const Row& row, const std::vector<SampleSize>& sizes,
            int tensor, int steps) {
  const PaperBatches batches = MakeBatches(sizes, row.packs, model, steps);
  const PlanRequest request = RequestOf(model, row, batches, tensor);
  ScoredPlan best;
  try {
    best = BestPlan(request, SearchPlans(request));
  } catch (const UserError& error) {
    return {{"fits", false}, {"why", error.what()}};
  }
  const Times times = TimesOf(request, best.plan);
  int again = 0;
  for (const Recompute kind : best.plan.recompute) again += kind != Recompute::kNone ? 1 : 0;
  return {{"fits", true},
          {"days", GpuDays(times.step_s, static_cast<double>(sizes.size()), batches)},
          {"idle", times.idle},
          {"again", again},
          {"layers", best.plan.recompute.size()},
          {"gib", static_cast<double>(best.peak_bytes()) / (1 << 30)},
          {"encoder_ranks", best.plan.encoder_ranks()},
          {"encoder_chunks", best.plan.encoder_chunks()}};
}

void Run(const std::string& histogram, int steps) {
  struct Model {
    const char* name;
    ModelConfig config;
    int tensor;  // ranks: the fewest by which balanced rows fit
  };
  const std::vector<Model> models = {{"6+20B", PresetConfig("internvl2-26b"), 1},
                                     {"6+34B", PresetConfig("internvl2-40b"), 1},
                                     {"6+70B", With70B(), 4}};
  for (const Model& model : models) {
    const std::vector<SampleSize> sizes = ReadHistogram(histogram, model.config);
    for (const Row& row : kRows) {
      Json line = LineOf(model.config, row, sizes, model.tensor, steps);
      line.update({{"model", model.name}, {"row", row.name}, {"tensor", model.tensor}});
      std::printf("%s\n", line.dump().c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace equipoise::testing

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s HISTOGRAM STEPS\n", argv[0]);
    return 2;
  }
  try {
    equipoise::testing::Run(argv[1], std::stoi(argv[2]));
  } catch (const equipoise::UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {  // a number that is none
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
