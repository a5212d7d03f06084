// The pass before the first step that shows whether the worst step of the epoch fits.

#include <ATen/ops/empty.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "trainer/device/memory_stats.h"
#include "trainer/loop/trainer_parts.h"

namespace equipoise {
namespace {

bool AsLarge(const Pack& a, const Pack& b) {
  return a.tiles >= b.tiles && a.tokens >= b.tokens && a.trained >= b.trained;
}

// The packs of the first epoch that no other one has as many tiles, tokens and targets as, most
// tiles first: memory grows with all three, so the worst is among them. No other pack is held.
std::vector<Pack> LargestPacks(EpochPacker planner) {
  std::vector<Pack> largest;
  DataPosition position;
  while (position.epoch == 0) {
    StepBatches step = planner.Next(position);
    for (Pack& pack : step.packs) {
      const auto as_large = [&](const Pack& other) { return AsLarge(other, pack); };
      if (std::any_of(largest.begin(), largest.end(), as_large)) continue;
      std::erase_if(largest, [&](const Pack& other) { return AsLarge(pack, other); });
      largest.push_back(std::move(pack));
    }
  }
  std::sort(largest.begin(), largest.end(), [](const Pack& a, const Pack& b) {
    return std::tie(a.tiles, a.tokens, a.trained) > std::tie(b.tiles, b.tokens, b.trained);
  });
  return largest;
}

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

// Each micro-batch of the step is the worst pack, so that as many are in flight as in any step.
void TrainerParts::ProbeMemory() {
  const auto probing = activity.During("probing memory");
  const auto loads_of = [this](const Pack& pack) {
    return std::vector<LayerLoad>(static_cast<size_t>(accumulation), pack.load());
  };
  const std::vector<Pack> packs = LargestPacks(MakePlanner());
  // With tiles where any pack has some: no stage is left out.
  const Schedule schedule = model->StepSchedule(loads_of(packs.front()));
  const Pack* worst = nullptr;
  int64_t most = -1, mine = 0;
  for (const Pack& pack : packs) {
    std::vector<int64_t> bytes;
    bytes.reserve(static_cast<size_t>(plan.pipeline));
    for (int rank = 0; rank < plan.pipeline; ++rank) {
      bytes.push_back(forecast->Memory(schedule, loads_of(pack), rank).total());
    }
    const int64_t highest = *std::max_element(bytes.begin(), bytes.end());
    if (highest <= most) continue;
    most = highest;
    mine = bytes[static_cast<size_t>(model->groups().at.pipeline)];
    worst = &pack;
  }
  spdlog::info("probe: running a step of the epoch's worst micro-batch, {} tiles and {} tokens",
               worst->tiles, worst->tokens);
  recorder.Stop();
  MarkMemory(device);
  RunProbe(*worst, loads_of(*worst));
  const int64_t measured = GetMemory(device).marked_peak_bytes;
  if (trace_until > 0) recorder.Start();
  ReturnFreeMemory();
  LogProbe(measured, mine);
}

void TrainerParts::RunProbe(const Pack& pack, const std::vector<LayerLoad>& loads) {
  const LoadedPack loaded = data->dataset.Load(pack, model->part().needs_pictures());
  ModelPart::Pass pass;
  pass.loads = loads;
  pass.batch = [&](int) -> const MicroBatch& { return loaded.batch; };
  model->RunStep(std::move(pass));
}

void TrainerParts::LogProbe(int64_t measured, int64_t expected) {
  at::Tensor mine = at::empty({2}, at::kLong), all = at::empty({2 * world->size()}, at::kLong);
  mine.data_ptr<int64_t>()[0] = measured;
  mine.data_ptr<int64_t>()[1] = expected;
  world->AllGather(all, mine).Wait();
  const int64_t* bytes = all.data_ptr<int64_t>();
  int fullest = 0;
  for (int rank = 1; rank < world->size(); ++rank) {
    if (bytes[2 * rank] > bytes[2 * fullest]) fullest = rank;
  }
  const double peak = MiB(bytes[2 * fullest]), forecast_peak = MiB(bytes[2 * fullest + 1]);
  spdlog::info(
      "probe: it takes {:.1f} MiB on rank {}, the most of all; forecast {:.1f} MiB ({:+.1f} %)",
      peak, fullest, forecast_peak, 100 * (forecast_peak / peak - 1));
}

}  // namespace equipoise
