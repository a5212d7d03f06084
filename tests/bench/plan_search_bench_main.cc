// Seconds of the planner's search on all processors, as `equipoise plan` has it, processor seconds
// first, beside how many plans it considers and simulates. One line a case.
//
//   plan_search_bench CONFIG [RANKS...]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>
#include <thread>

#include "balance/search/plan_search.h"
#include "configs/base/error.h"
#include "configs/yaml/yaml_reader.h"
#include "trainer/planner/plan_run.h"
#include "trainer/planner/plan_workload.h"
#include "trainer/planner/sample_costs.h"
#include "trainer/settings/model_section.h"

namespace equipoise {
namespace {

void Run(const std::string& path, int ranks, const std::string& encoder) {
  RunConfig config;
  const std::string batch = std::to_string(8 * ranks);
  ReadConfig(
      path,
      {ParseOverride("parallel.encoder=" + encoder), ParseOverride("train.global_batch=" + batch),
       ParseOverride("cluster.nodes=" + std::to_string(ranks / 8))},
      config);
  const ModelConfig model = ModelConfigOf(config.model);
  const SampleCosts costs = GatherSampleCosts(config, model);
  const PlannedRun planned = PlanWorkload(costs, config, model);
  PlanRequest request = PlanRequestOf(config, model, planned.workload, {ranks});
  request.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::clock_t start = std::clock();
  const auto began = std::chrono::steady_clock::now();
  const PlanSearchResult result = SearchPlans(request);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
  const ScoredPlan best = BestPlan(request, result);
  std::printf(
      "%5d ranks, encoder %-8s %6.2f s (%.2f elapsed), %4d considered, %4d simulated: %.5g s, %s\n",
      ranks, encoder.c_str(), seconds, elapsed.count(), result.considered, result.simulated,
      best.step_s, DescribeMesh(best.plan).c_str());
  std::fflush(stdout);
}

}  // namespace
}  // namespace equipoise

int main(int argc, char** argv) {
  try {
    for (int i = 2; i < argc; ++i) {
      for (const char* encoder : {"inline", "auto"})
        equipoise::Run(argv[1], std::stoi(argv[i]), encoder);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
