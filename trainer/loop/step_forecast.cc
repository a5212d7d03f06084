#include "trainer/loop/step_forecast.h"

#include <utility>

#include "balance/costs/stage_costs.h"
#include "balance/search/plan_forecast.h"
#include "parallel/schedule/prefetch.h"
#include "trainer/settings/precision.h"
#include "trainer/settings/run_cluster.h"
#include "trainer/settings/run_style.h"

namespace equipoise {

StepForecast::GivenProfile StepForecast::ProfileOf(const RunConfig& config,
                                                   const ProfileUse& here) {
  const std::string& path = config.cluster.profile;
  if (path.empty()) return {};
  GivenProfile given;
  given.profile = ReadProfile(path);
  given.warning = RequireProfile(*given.profile, here, path, config.cluster.force_profile);
  return given;
}

StepForecast::StepForecast(const RunConfig& config, const ModelConfig& model, const Plan& plan,
                           const ProfileUse& here)
    : StepForecast(config, model, plan, here, ProfileOf(config, here)) {}

StepForecast::StepForecast(const RunConfig& config, const ModelConfig& model, const Plan& plan,
                           const ProfileUse& here, GivenProfile given)
    : plan_(plan),
      warning_(std::move(given.warning)),
      costs_(model,
             ClusterFor(config.cluster, plan.num_ranks(),
                        static_cast<int>(config.train.diloco.islands)),
             CostModel::OptionsOf(plan,
                                  {.element_bytes = ElementBytes(ParsePrecision(here.precision)),
                                   .frozen = config.model.freeze,
                                   .style = StyleOf(config.train, plan.context(), plan.sequence)}),
             given.profile ? &*given.profile : nullptr),
      knows_peak_(costs_.cluster().multiprocessors > 0 || config.cluster.peak_tflops.has_value()),
      knows_speed_(knows_peak_ || !config.cluster.profile.empty()) {}

SimulationCosts StepForecast::Costs(const std::vector<LayerLoad>& loads) const {
  return StageCosts(costs_, plan_, costs_.cluster(), loads);
}

Simulation StepForecast::Simulated(const Schedule& schedule, const std::vector<LayerLoad>& loads,
                                   int taken) const {
  return Simulate(schedule, WithTaken(Costs(loads), taken));
}

RankSeconds StepForecast::Seconds(const Schedule& schedule, const std::vector<LayerLoad>& loads,
                                  int pipeline_rank, int taken, int lane) const {
  const Simulation simulation = SimulateTimes(schedule, WithTaken(Costs(loads), taken));
  const auto rank = static_cast<size_t>(pipeline_rank);
  RankSeconds seconds;
  seconds.step_s = seconds.passes_s = simulation.step_s;
  for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
    const Op& op = schedule.ranks[rank][i];
    if (op.kind == OpKind::kOptimizer) {  // which begins with the last sums of gradients
      seconds.passes_s = simulation.start_s[rank][i] +
                         SumCopiesSeconds(costs_, plan_, costs_.cluster(), pipeline_rank) +
                         SumTiedSeconds(costs_, plan_, costs_.cluster(), pipeline_rank);
    }
    if (!IsCompute(op.kind) || !RunsInLane(schedule.graph, op, lane)) continue;
    seconds.compute_s += simulation.end_s[rank][i] - simulation.start_s[rank][i];
  }
  return seconds;
}

std::optional<double> StepForecast::Mfu(const std::vector<LayerLoad>& all, double seconds,
                                        int ranks) const {
  if (!knows_peak_) return std::nullopt;
  double flops = 0;
  for (const LayerLoad& load : all) flops += ModelFlops(costs_, load);
  return flops / (seconds * ranks * costs_.cluster().peak_flops);
}

MemoryForecast StepForecast::Memory(const Schedule& schedule, const std::vector<LayerLoad>& loads,
                                    int pipeline_rank) const {
  return ForecastMemory(costs_, plan_, schedule, loads, pipeline_rank);
}

}  // namespace equipoise
