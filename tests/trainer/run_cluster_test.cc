#include "trainer/settings/run_cluster.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

// Devices of a node, of so many ranks on these machines.
int DevicesPerNode(const std::vector<int>& machines, ClusterConfig config = {}) {
  UseMachines(machines, config);
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
  UseMachines({0, 0, 1, 1}, config);
  const Cluster two = ClusterFor(config, 4), one = ClusterFor({}, 4);
  CHECK(two.nodes == 2);
  CHECK(one.nodes == 1);
  CHECK(two.memory_bytes / 2 == one.memory_bytes);
}

}  // namespace
}  // namespace equipoise
