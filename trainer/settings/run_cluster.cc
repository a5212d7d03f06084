#include "trainer/settings/run_cluster.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>

#include "balance/costs/collective_time.h"
#include "configs/base/control_group.h"
#include "parallel/mesh.h"

namespace equipoise {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kReserveShare = 0.06;   // share of a GPU's memory for context and fragmentation
constexpr double kSameMemory = 0.02;     // relative difference up to which memory counts as equal
constexpr double kShareOfMachine = 0.9;  // share of the machine's memory that all its ranks may use

int64_t ShareOfMachine(int64_t machine_bytes, int ranks) {
  return static_cast<int64_t>(kShareOfMachine * static_cast<double>(machine_bytes)) / ranks;
}

// What a run may use of a machine's memory, in steps that machines of one kind agree on.
double HostGib(int64_t machine_bytes) {
  constexpr double kStep = 16;
  const double gib = kShareOfMachine * static_cast<double>(machine_bytes) / kGiB;
  return gib < kStep ? gib : kStep * std::floor(gib / kStep);
}

}  // namespace

Cluster ClusterFor(const ClusterConfig& config, int ranks, int islands) {
  Cluster cluster = MakeCluster(config);
  if (config.preset == kLocalPreset && !config.gpus_per_node)
    cluster.devices_per_node = ranks * islands;
  cluster.nodes = (ranks + cluster.devices_per_node - 1) / cluster.devices_per_node;
  if (config.preset == kLocalPreset && !config.memory_gb) {
    cluster.memory_bytes = LocalMemoryBytes(cluster.devices_per_node);
  }
  if (config.preset == kLocalPreset && !config.host_gb) {
    cluster.host.bytes = static_cast<int64_t>(HostGib(MachineMemoryBytes()) * kGiB);
  }
  cluster.host.bytes /= IslandsOfNode(cluster, ranks, islands);
  return cluster;
}

int64_t MachineMemoryBytes() {
  const int64_t all = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::min(all, MemoryLimit().value_or(all));
}

int64_t LocalMemoryBytes(int ranks) { return ShareOfMachine(MachineMemoryBytes(), ranks); }

std::string UseGpu(const GpuFacts& gpu, ClusterConfig& config) {
  if (config.preset != kLocalPreset) return "";
  const double gib = static_cast<double>(gpu.memory_bytes) / kGiB / gpu.ranks;
  const std::string has =
      gpu.ranks == 1 ? fmt::format("{:.1f} GiB", gib)
                     : fmt::format("{:.1f} GiB for each of {} ranks that share it", gib, gpu.ranks);
  if (!config.gpus_per_node) config.gpus_per_node = gpu.on_machine;
  if (!config.host_gb) config.host_gb = HostGib(gpu.machine_bytes);
  const std::string preset = ClusterPresetFor(gpu.name);
  if (preset.empty()) {
    if (!config.memory_gb) config.memory_gb = (1 - kReserveShare) * gib;
    return fmt::format(
        "cluster: there is no preset for {}: its memory is known, {}, its speed is not; give "
        "cluster.peak_tflops, hbm_gb_s and multiprocessors, or a profile",
        gpu.name, has);
  }
  config.preset = preset;
  const double usual = static_cast<double>(MakeCluster(config).memory_bytes) / kGiB;
  if (!config.memory_gb && std::abs(gib / usual - 1) > kSameMemory) config.memory_gb = gib;
  return fmt::format("cluster: {}, as this machine has {} ({}); cluster.preset names another",
                     preset, gpu.name, has);
}

void UseMachines(const std::vector<int>& machines, int64_t least, ClusterConfig& config) {
  const int per_machine = RanksPerMachine(machines);
  if (config.preset != kLocalPreset || per_machine == std::ssize(machines)) return;
  if (!config.gpus_per_node) config.gpus_per_node = per_machine;
  if (!config.memory_gb) {
    std::map<int, int> ranks;
    int most = 0;  // more than `per_machine` where machines have unequal numbers
    for (const int machine : machines) most = std::max(most, ++ranks[machine]);
    config.memory_gb = static_cast<double>(ShareOfMachine(least, most)) / kGiB;
  }
  if (!config.host_gb) config.host_gb = HostGib(least);
}

}  // namespace equipoise
