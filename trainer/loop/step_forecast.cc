#include "trainer/loop/step_forecast.h"

#include <optional>

#include "balance/costs/stage_costs.h"
#include "balance/search/plan_forecast.h"
#include "trainer/device/precision.h"
#include "trainer/settings/run_cluster.h"

namespace equipoise {
namespace {

CostModel MakeCosts(const RunConfig& config, const ModelConfig& model, const Plan& plan,
                    const ProfileUse& here, std::string& warning) {
  CostModel::Options options;
  options.tensor = plan.tensor;
  options.element_bytes = ElementBytes(ParsePrecision(here.precision));
  options.frozen = config.model.freeze;
  std::optional<Profile> profile;
  const std::string& path = config.cluster.profile;
  if (!path.empty()) {
    profile = ReadProfile(path);
    warning = RequireProfile(*profile, here, path, config.cluster.force_profile);
  }
  return CostModel(model, ClusterFor(config.cluster, plan.num_ranks()), options,
                   profile ? &*profile : nullptr);
}

}  // namespace

StepForecast::StepForecast(const RunConfig& config, const ModelConfig& model, const Plan& plan,
                           const ProfileUse& here)
    : plan_(plan),
      costs_(MakeCosts(config, model, plan, here, warning_)),
      knows_peak_(costs_.cluster().multiprocessors > 0 || config.cluster.peak_tflops.has_value()),
      knows_speed_(knows_peak_ || !config.cluster.profile.empty()) {}

Simulation StepForecast::Simulated(const Schedule& schedule,
                                   const std::vector<LayerLoad>& loads) const {
  return Simulate(schedule, StageCosts(costs_, plan_, costs_.cluster(), loads));
}

RankSeconds StepForecast::Seconds(const Schedule& schedule, const std::vector<LayerLoad>& loads,
                                  int pipeline_rank) const {
  const SimulationCosts costs = StageCosts(costs_, plan_, costs_.cluster(), loads);
  const Simulation simulation = SimulateTimes(schedule, costs);
  const auto rank = static_cast<size_t>(pipeline_rank);
  RankSeconds seconds;
  seconds.step_s = seconds.passes_s = simulation.step_s;
  seconds.compute_s = simulation.busy_s[rank];
  for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
    if (schedule.ranks[rank][i].kind != OpKind::kOptimizer) continue;
    seconds.passes_s = simulation.start_s[rank][i];
    seconds.compute_s -= simulation.end_s[rank][i] - simulation.start_s[rank][i];
  }
  return seconds;
}

std::optional<double> StepForecast::Mfu(const std::vector<LayerLoad>& all, double seconds) const {
  if (!knows_peak_) return std::nullopt;
  double flops = 0;
  for (const LayerLoad& load : all) flops += ModelFlops(costs_, load);
  return flops / (seconds * plan_.num_ranks() * costs_.cluster().peak_flops);
}

MemoryForecast StepForecast::Memory(const Schedule& schedule, const std::vector<LayerLoad>& loads,
                                    int pipeline_rank) const {
  return ForecastMemory(costs_, plan_, schedule, loads, pipeline_rank);
}

}  // namespace equipoise
