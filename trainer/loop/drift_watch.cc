// Compares the ranks' steps with each other, and with predicted ones, while a run goes on.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "trainer/loop/trainer_parts.h"

namespace equipoise {
namespace {

constexpr int kFigures = 8;

std::array<double, kFigures> Figures(const RankTimes& times) {
  const auto& [m, p] = times;
  return {m.step_s, m.passes_s, m.compute_s, m.data_wait_s,
          p.step_s, p.passes_s, p.compute_s, p.data_wait_s};
}

RankTimes FromFigures(const double* f) {
  return {{f[0], f[1], f[2], f[3]}, {f[4], f[5], f[6], f[7]}};
}

}  // namespace

void TrainerParts::WatchDrift(const RankTimes& step) {
  const std::optional<RankTimes> window = drift.Add(step);
  if (!window) return;
  at::Tensor mine = at::empty({kFigures}, at::kDouble);
  at::Tensor all = at::empty({kFigures * world->size()}, at::kDouble);
  const std::array<double, kFigures> figures = Figures(*window);
  std::copy(figures.begin(), figures.end(), mine.data_ptr<double>());
  world->AllGather(all, mine).Wait();
  std::vector<RankTimes> ranks;
  ranks.reserve(static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) {
    ranks.push_back(FromFigures(all.data_ptr<double>() + kFigures * rank));
  }
  for (const Straggler& straggler : stragglers.Add(ranks)) {
    if (world->rank() == 0) spdlog::warn("straggler: {}", Describe(straggler, setup.hosts));
  }
  if (!forecast->knows_speed()) return;
  const std::optional<std::string> line = drift.Judge(ranks);
  if (line && world->rank() == 0) spdlog::warn("drift: {}", *line);
}

}  // namespace equipoise
