#include "trainer/settings/run_cluster.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

// Devices of a node, of so many ranks on these machines.
int DevicesPerNode(const std::vector<int>& machines, ClusterConfig config = {}) {
  UseMachines(machines, MachineMemoryBytes(), config);
  return ClusterFor(config, static_cast<int>(machines.size())).devices_per_node;
}

TEST_CASE("local ranks are one node unless they are on several machines") {
  CHECK(DevicesPerNode({0}) == 1);
  CHECK(DevicesPerNode({0, 0, 0, 0}) == 4);
  CHECK(DevicesPerNode({0, 0, 1, 1}) == 2);
  CHECK(DevicesPerNode({0, 0, 0, 0, 1, 1}) == 2);
  CHECK(DevicesPerNode({0, 1, 0, 1}) == 1);
}

TEST_CASE("what the configuration says of nodes stands") {
  ClusterConfig given;
  given.gpus_per_node = 4;
  CHECK(DevicesPerNode({0, 0, 1, 1}, given) == 4);
  ClusterConfig h100;
  h100.preset = "h100-80g";
  CHECK(DevicesPerNode({0, 0, 1, 1}, h100) == 8);
}

TEST_CASE("nodes of several machines share the memory of each") {
  ClusterConfig config;
  UseMachines({0, 0, 1, 1}, MachineMemoryBytes(), config);
  const Cluster two = ClusterFor(config, 4), one = ClusterFor({}, 4);
  CHECK(two.nodes == 2);
  CHECK(one.nodes == 1);
  CHECK(static_cast<double>(two.memory_bytes) ==
        Approx(static_cast<double>(2 * one.memory_bytes)).epsilon(1e-9));
  CHECK(two.host.bytes == one.host.bytes);
}

constexpr int64_t kGiB = int64_t{1} << 30;

TEST_CASE("of several machines the one with the least memory counts") {
  ClusterConfig config;
  UseMachines({0, 0, 0, 1}, 30 * kGiB, config);
  const Cluster cluster = ClusterFor(config, 4);
  CHECK(cluster.memory_bytes == 9 * kGiB);  // 0.9 of it for three ranks
  CHECK(cluster.host.bytes == 16 * kGiB);
  ClusterConfig given;
  given.memory_gb = 5, given.host_gb = 7;
  UseMachines({0, 1}, 30 * kGiB, given);
  CHECK(given.memory_gb == 5);
  CHECK(given.host_gb == 7);
  ClusterConfig one;
  UseMachines({0, 0}, 30 * kGiB, one);
  CHECK_FALSE(one.memory_gb);
}

TEST_CASE("a GPU takes the place of the local CPUs") {
  struct Case {
    const char* name;
    int64_t gib;
    const char* preset;
    bool usual_memory;
  };
  const Case each = GENERATE(
      Case{"NVIDIA H200", 140, "h200", true}, Case{"NVIDIA A100-SXM4-80GB", 79, "a100-80g", true},
      Case{"NVIDIA A100-PCIE-40GB", 39, "a100-40g", true},
      Case{"NVIDIA H100 NVL", 94, "h100-nvl", true}, Case{"NVIDIA GH200 480GB", 95, "local", false},
      Case{"NVIDIA GeForce RTX 4090", 20, "rtx-4090", false},
      Case{"NVIDIA GeForce RTX 3060", 12, "local", false});
  INFO(each.name);
  ClusterConfig config;
  const std::string line = UseGpu({each.name, each.gib * kGiB, 4}, config);
  CHECK(config.preset == each.preset);
  CHECK(config.gpus_per_node == 4);
  CHECK(config.host_gb > 0);  // this machine's
  CHECK(config.memory_gb.has_value() == !each.usual_memory);
  CHECK(line.find(each.name) != std::string::npos);
  const bool known = config.preset != kLocalPreset;
  CHECK((line.find("there is no preset") == std::string::npos) == known);
  // A run on one of them is a node with that memory.
  const Cluster cluster = ClusterFor(config, 1);
  CHECK(cluster.nodes == 1);
  CHECK(static_cast<double>(cluster.memory_bytes) ==
        Approx(static_cast<double>(each.gib * kGiB) * (known ? 1 : 0.94)).epsilon(0.02));
  CHECK((cluster.multiprocessors > 0) == known);
}

TEST_CASE("ranks that share a GPU share its memory") {
  for (const char* name : {"NVIDIA H200", "NVIDIA GeForce RTX 3060"}) {
    INFO(name);
    ClusterConfig alone, shared;
    UseGpu({name, 120 * kGiB, 1}, alone);
    const std::string line = UseGpu({name, 120 * kGiB, 3, 3}, shared);
    CHECK(line.find("40.0 GiB for each of 3 ranks") != std::string::npos);
    const Cluster whole = ClusterFor(alone, 1), third = ClusterFor(shared, 3);
    CHECK(third.nodes == 1);
    CHECK(static_cast<double>(third.memory_bytes) ==
          Approx(static_cast<double>(whole.memory_bytes) / 3));
  }
}

TEST_CASE("what the configuration says of the devices stands beside a GPU") {
  ClusterConfig named;
  named.preset = "a100-80g";
  CHECK(UseGpu({"NVIDIA H200", 140 * kGiB, 8}, named).empty());
  CHECK(named.preset == "a100-80g");
  CHECK_FALSE(named.gpus_per_node);
  ClusterConfig given;
  given.memory_gb = 20, given.gpus_per_node = 2, given.host_gb = 3;
  CHECK_FALSE(UseGpu({"NVIDIA H200", 140 * kGiB, 8}, given).empty());
  CHECK(given.preset == "h200");
  CHECK(given.memory_gb == 20);
  CHECK(given.host_gb == 3);
  CHECK(given.gpus_per_node == 2);
}

}  // namespace
}  // namespace equipoise
