#include "trainer/loop/run_summary.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <ctime>
#include <string>
#include <vector>

#include "configs/base/json.h"
#include "parallel/comm/gather_text.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/memory_stats.h"
#include "trainer/planner/make_plan.h"
#include "trainer/settings/diloco.h"

namespace equipoise {
namespace {

// Memory and device of every rank. Collective.
std::vector<RankMemory> GatherMemory(const RunContext& context, int64_t forecast_bytes) {
  const Json mine = {{"machine", context.setup.hosts[static_cast<size_t>(context.rank())]},
                     {"device", DeviceName(context.device())},
                     {"forecast", forecast_bytes},
                     {"tensors", GetMemory(context.device()).peak_bytes},
                     {"rss", PeakRssBytes()}};
  std::vector<RankMemory> ranks;
  for (const std::string& text : CollectText(context.world(), mine.dump())) {
    const Json rank = Json::parse(text);
    ranks.push_back(
        {rank["machine"], rank["device"], rank["forecast"], rank["tensors"], rank["rss"]});
  }
  return ranks;
}

}  // namespace

RunSummary SummarizeRun(const RunContext& context, const RunData& data, const Replica& replica,
                        const PlanPrediction& prediction, const TrainState& state) {
  const auto rank = static_cast<size_t>(replica.pipeline_rank());
  const std::vector<int64_t>& forecast = prediction.memory_bytes;
  RunSummary run;
  run.ranks = GatherMemory(context, rank < forecast.size() ? forecast[rank] : 0);
  run.command = CommandLine();
  run.finished = UtcText(std::time(nullptr));
  run.wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - context.started).count();
  const std::string islands = DescribeIslands(context.config, context.world().size());
  run.plan = (islands.empty() ? "" : islands + ", each ") + DescribePlan(replica.plan());
  run.precision = ToString(context.setup.precision);
  run.micro_batches = replica.accumulation();
  run.threads = at::get_num_threads();
  run.parameters = replica.parameter_count();
  run.tokens = state.tokens;
  run.samples = state.samples;
  run.images = state.images;
  run.left_out = data.left_out();
  run.skipped = state.skipped_samples;
  return run;
}

}  // namespace equipoise
