#include "trainer/loop/memory_probe.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "data/loading/agree_on_faults.h"
#include "models/families/families.h"
#include "parallel/comm/values.h"
#include "trainer/device/memory_stats.h"
#include "trainer/device/this_gpu.h"
#include "trainer/loop/out_of_memory.h"
#include "trainer/settings/run_cluster.h"

namespace equipoise {
namespace {

bool AsLarge(const Pack& a, const Pack& b) {
  return a.pictures.patches >= b.pictures.patches && a.row_tokens >= b.row_tokens &&
         a.trained >= b.trained;
}

// The Pareto front of the first epoch's packs in patches, tokens and targets, most patches first:
// memory grows with all three, so the worst pack is among them. Only the front is kept in memory.
std::vector<Pack> LargestPacks(EpochPacker packer) {
  std::vector<Pack> largest;
  DataPosition position;
  while (position.epoch == 0) {
    StepBatches step = packer.Next(position);
    for (Pack& pack : step.packs) {
      const auto as_large = [&](const Pack& other) { return AsLarge(other, pack); };
      if (std::any_of(largest.begin(), largest.end(), as_large)) continue;
      std::erase_if(largest, [&](const Pack& other) { return AsLarge(pack, other); });
      largest.push_back(std::move(pack));
    }
  }
  std::sort(largest.begin(), largest.end(), [](const Pack& a, const Pack& b) {
    return std::tie(a.pictures.patches, a.row_tokens, a.trained) >
           std::tie(b.pictures.patches, b.row_tokens, b.trained);
  });
  return largest;
}

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// The pack whose step has the highest forecast on some pipeline rank.
struct WorstPack {
  Pack pack;
  std::vector<LayerLoad> loads;  // of that step
  int64_t expected = 0;          // forecast bytes of this rank
  int64_t highest = 0;           // of the fullest
};

WorstPack FindWorst(std::vector<Pack> packs, const Replica& replica) {
  const auto loads_of = [&replica](const Pack& pack) {
    return std::vector<LayerLoad>(static_cast<size_t>(replica.accumulation()), pack.load());
  };
  const ParallelModel& model = replica.model();
  // The first pack has pictures if any has, so the schedule leaves out no stage.
  const Schedule schedule = model.StepSchedule(model.LoadsAtPeak(loads_of(packs.front())));
  WorstPack worst;
  int64_t most = -1;
  for (Pack& pack : packs) {
    const std::vector<LayerLoad> loads = loads_of(pack);
    const std::vector<LayerLoad> at_peak = model.LoadsAtPeak(loads);
    std::vector<int64_t> bytes;
    bytes.reserve(static_cast<size_t>(replica.plan().pipeline()));
    for (int rank = 0; rank < replica.plan().pipeline(); ++rank) {
      // What the reserve is for, the allocator's tensors do not hold.
      const MemoryForecast forecast = replica.forecast().Memory(schedule, at_peak, rank);
      bytes.push_back(forecast.total() - forecast.reserve);
    }
    const int64_t highest = *std::max_element(bytes.begin(), bytes.end());
    if (highest <= most) continue;
    most = highest;
    worst = {std::move(pack), loads, bytes[static_cast<size_t>(replica.pipeline_rank())], most};
  }
  return worst;
}

void RunProbe(const RunData& data, Replica& replica, const WorstPack& worst) {
  ParallelModel& model = replica.model();
  LoadedPack loaded = data.dataset().Load(worst.pack, model.part().needs_pictures());
  ModelPart::Pass pass;
  pass.loads = worst.loads;
  if (model.delays_updates()) pass.next_loads = worst.loads;
  pass.batch = [&](int) -> const MicroBatch& { return loaded.batch; };
  pass.settle = [&](int) {
    return AgreeOnFaults(data.dataset(), worst.pack, model.groups().same_batches(), loaded);
  };
  RunWithinMemory(replica, model.part().device(), "probe", worst.loads, [&] {
    model.RunStep(pass);
    // With passes ahead, both of the step before and of the next one.
    if (model.delays_updates()) model.RunStep(pass);
    model.DropAhead();
  });
}

// Logs the fullest rank's bytes, on rank 0. Collective.
void LogProbe(Communicator& world, int64_t measured, int64_t expected) {
  const auto ranks = GatherValues(world, std::vector<int64_t>{measured, expected});
  const auto most = std::max_element(ranks.begin(), ranks.end(),
                                     [](const auto& a, const auto& b) { return a[0] < b[0]; });
  const auto fullest = most - ranks.begin();
  const double peak = MiB((*most)[0]), forecast = MiB((*most)[1]);
  spdlog::info(
      "probe: it takes {:.1f} MiB on rank {}, the most of all; forecast {:.1f} MiB ({:+.1f} %)",
      peak, fullest, forecast, 100 * (forecast / peak - 1));
}

// What this rank may use: no more than its device has, which cluster.preset may not describe.
int64_t MemoryHere(const RunContext& context, const Replica& replica) {
  const int64_t planned = replica.forecast().memory_bytes();
  const at::Device device = context.device();
  if (device.is_cuda()) {
    const auto gpu = ThisGpu(context.config.train.device, device.index());
    return gpu ? std::min(planned, gpu->memory_bytes / context.setup.ranks_per_gpu) : planned;
  }
  const std::vector<int>& machines = context.setup.machines;
  const int mine = machines[static_cast<size_t>(context.rank())];
  const auto ranks = std::count(machines.begin(), machines.end(), mine);
  return std::min(planned, LocalMemoryBytes(static_cast<int>(ranks)));
}

}  // namespace

void ProbeMemory(RunContext& context, const RunData& data, Replica& replica) {
  const MemoryProbe when = context.config.run.probe;
  if (when == MemoryProbe::kNever) return;
  const auto probing = context.activity.During("probing memory");
  const WorstPack worst = FindWorst(LargestPacks(data.MakePacker(replica.data_ranks())), replica);
  // No forecast of a step's total has been so far off. The memory of machines may differ.
  const int64_t memory = MemoryHere(context, replica);
  const bool close = AnyRank(context.world(), 2 * worst.highest > memory);
  if (when == MemoryProbe::kAuto && !close) {
    spdlog::info(
        "probe: none, as the worst micro-batch is forecast to take {:.1f} MiB of {:.1f}, less "
        "than half (run.probe: true runs it)",
        MiB(worst.highest), MiB(memory));
    return;
  }
  spdlog::info("probe: running a step of the epoch's worst micro-batch, {} tiles and {} tokens",
               ImageSpecOf(data.model_config()).TilesOf(worst.pack.pictures.patches),
               worst.pack.row_tokens);
  MarkMemory(context.device());
  RunProbe(data, replica, worst);
  const int64_t measured = GetMemory(context.device()).marked_peak_bytes;
  ReturnFreeMemory();
  ReturnFreeMemory(context.device());
  LogProbe(context.world(), measured, worst.expected);
}

}  // namespace equipoise
