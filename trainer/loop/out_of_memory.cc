#include "trainer/loop/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "configs/base/error.h"
#include "trainer/device/memory_stats.h"

namespace equipoise {
namespace {

double GiB(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

}  // namespace

void RunWithinMemory(const Replica& replica, at::Device device, const std::string& what,
                     const std::vector<LayerLoad>& loads, const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::OutOfMemoryError&) {
    const CpuMemory memory = GetMemory(device);
    const std::vector<LayerLoad> at_peak = replica.model().LoadsAtPeak(loads);
    const MemoryForecast forecast = replica.forecast().Memory(replica.model().StepSchedule(at_peak),
                                                              at_peak, replica.pipeline_rank());
    throw RunError(fmt::format(
        "{}: GPU {} is out of memory: {:.2f} GiB in tensors, {:.2f} GiB taken from the device; "
        "forecast {:.2f} GiB; lower balance.tokens or balance.tiles, or set train.moments: bf16, "
        "balance.recompute: full, parallel.zero: 1 or more ranks, and cluster.memory_gb where "
        "other processes use the GPU",
        what, device.index(), GiB(memory.current_bytes), GiB(memory.reserved_peak_bytes),
        GiB(forecast.total() - forecast.reserve)));
  }
}

}  // namespace equipoise
