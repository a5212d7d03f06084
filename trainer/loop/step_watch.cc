#include "trainer/loop/step_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/values.h"

namespace equipoise {
namespace {

std::vector<double> Figures(const RankTimes& times) {
  const auto& [m, p] = times;
  return {m.step_s, m.passes_s, m.compute_s, m.data_wait_s,
          p.step_s, p.passes_s, p.compute_s, p.data_wait_s};
}

RankTimes FromFigures(const std::vector<double>& f) {
  return {{f[0], f[1], f[2], f[3]}, {f[4], f[5], f[6], f[7]}};
}

// Times of all ranks. Collective.
std::vector<RankTimes> GatherTimes(Communicator& world, const RankTimes& mine) {
  std::vector<RankTimes> ranks;
  ranks.reserve(static_cast<size_t>(world.size()));
  for (const std::vector<double>& figures : GatherValues(world, Figures(mine)))
    ranks.push_back(FromFigures(figures));
  return ranks;
}

std::vector<int> PipelineRanks(const Mesh& mesh) {
  std::vector<int> layers;
  layers.reserve(static_cast<size_t>(mesh.size()));
  for (int rank = 0; rank < mesh.size(); ++rank)
    layers.push_back(mesh.Coordinate(rank, Axis::kPipeline));
  return layers;
}

}  // namespace

StepWatch::StepWatch(const RunContext& context, const Mesh& mesh, const StepForecast& forecast)
    : context_(context),
      knows_speed_(forecast.knows_speed()),
      drift_(forecast.error_band()),
      stragglers_(PipelineRanks(mesh)) {}

void StepWatch::Add(const RankTimes& step) {
  const std::optional<RankTimes> window = drift_.Add(step);
  if (!window) return;
  const std::vector<RankTimes> ranks = GatherTimes(context_.world(), *window);
  const bool warns = context_.rank() == 0;
  for (const Straggler& straggler : stragglers_.Add(ranks)) {
    if (warns) spdlog::warn("straggler: {}", Describe(straggler, context_.setup.hosts));
  }
  if (!knows_speed_) return;
  const std::optional<std::string> line = drift_.Judge(ranks);
  if (line && warns) spdlog::warn("drift: {}", *line);
}

}  // namespace equipoise
