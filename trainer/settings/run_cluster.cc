#include "trainer/settings/run_cluster.h"

#include <unistd.h>

#include <cstdint>

#include "parallel/mesh.h"

namespace equipoise {
namespace {

constexpr double kShareOfMachine = 0.9;  // of its memory that local ranks may use together

int64_t MachineMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace

Cluster ClusterFor(const ClusterConfig& config, int ranks) {
  Cluster cluster = MakeCluster(config);
  if (config.preset == kLocalPreset && !config.gpus_per_node) cluster.devices_per_node = ranks;
  cluster.nodes = (ranks + cluster.devices_per_node - 1) / cluster.devices_per_node;
  if (config.preset == kLocalPreset && !config.memory_gb) {
    cluster.memory_bytes =
        static_cast<int64_t>(kShareOfMachine * static_cast<double>(MachineMemoryBytes())) /
        cluster.devices_per_node;
  }
  return cluster;
}

void UseMachines(const std::vector<int>& machines, ClusterConfig& config) {
  if (config.preset != kLocalPreset || config.gpus_per_node) return;
  const auto together = static_cast<size_t>(RanksPerMachine(machines));
  if (together < machines.size()) config.gpus_per_node = static_cast<int64_t>(together);
}

}  // namespace equipoise
