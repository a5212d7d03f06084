#include "balance/costs/cluster.h"

#include <catch2/catch.hpp>

#include "balance/costs/collective_time.h"
#include "configs/base/error.h"
#include "configs/yaml/yaml_reader.h"

namespace equipoise {
namespace {

Cluster FromYaml(const std::string& text) {
  ClusterConfig config;
  ReadConfigText("c.yaml", text, {}, config);
  return MakeCluster(config);
}

TEST_CASE("a preset gives what the section leaves out", "[balance][cpu]") {
  const Cluster cluster = FromYaml("{preset: a100-80g, nodes: 8, hbm_gb_s: 1555}");
  CHECK(cluster.name == "a100-80g with hbm_gb_s 1555");
  CHECK(cluster.num_devices() == 64);
  CHECK(cluster.peak_flops == 312e12);
  CHECK(cluster.memory_bytes_per_s == 1555e9);
  CHECK(cluster.intra.bytes_per_s == 300e9);
  CHECK(cluster.price_per_device_hour == 0);
}

TEST_CASE("a cluster is named by its preset and what differs from it", "[balance][cpu]") {
  CHECK(FromYaml("{preset: h200, nodes: 4, gpus_per_node: 4, price_per_gpu_hour: 2}").name ==
        "h200");
  CHECK(FromYaml("{preset: a100-80g, peak_tflops: 165, memory_gb: 23.5}").name ==
        "a100-80g with peak_tflops 165, memory_gb 23.5");
}

TEST_CASE("bad clusters are refused in one line", "[balance][cpu]") {
  CHECK_THROWS_WITH(FromYaml("{preset: a100-80}"),
                    "cluster.preset: no preset 'a100-80'; did you mean 'a100-80g'?");
  CHECK_THROWS_WITH(FromYaml("{preset: tpu}"),
                    "cluster.preset: no preset 'tpu'; use one of local, a100-80g, h100-80g, h200, "
                    "and numbers of your own such as cluster.peak_tflops and cluster.memory_gb");
  CHECK_THROWS_WITH(FromYaml("{preset: b200}"), Catch::Contains("use one of local"));
  CHECK_THROWS_AS(FromYaml("{nodes: 0}"), ConfigError);
  CHECK_THROWS_AS(FromYaml("{gemm_efficiency: 1.5}"), ConfigError);
  CHECK_THROWS_AS(FromYaml("{memory: 3}"), ConfigError);
}

TEST_CASE("ring collectives take the times of their steps", "[balance][cpu]") {
  const LinkModel link{1e-3, 1e6};
  CHECK(AllReduceSeconds(8e6, 1, link) == 0);
  CHECK(AllGatherSeconds(8e6, 4, link) == Approx(3 * (1e-3 + 2)));
  CHECK(AllReduceSeconds(8e6, 4, link) == Approx(6 * (1e-3 + 2)));
}

TEST_CASE("groups inside a node use its links, others the adapters", "[balance][cpu]") {
  const Cluster cluster = FromYaml("{preset: a100-80g, nodes: 8}");
  Plan plan = InlinePlan({.data = 8, .pipeline = 4, .tensor = 2});
  CHECK(TensorLink(cluster, plan).bytes_per_s == 300e9);
  CHECK(PipelineLink(cluster, plan, 0, 3).bytes_per_s == 300e9);
  // One data rank a node: its one adapter.
  CHECK(DataLink(cluster, plan).bytes_per_s == 25e9);
  plan = InlinePlan({.data = 32, .pipeline = 1, .tensor = 2});
  // Four of each group in a node.
  CHECK(DataLink(cluster, plan).bytes_per_s == 100e9);
  plan = InlinePlan({.data = 4, .pipeline = 8, .tensor = 2});
  CHECK(PipelineLink(cluster, plan, 0, 3).bytes_per_s == 300e9);
  CHECK(PipelineLink(cluster, plan, 3, 4).bytes_per_s == 25e9);
}

TEST_CASE("a profile's links take the place of the preset's inside a node", "[balance][cpu]") {
  Profile profile;
  const Cluster preset = FromYaml("{}");
  CHECK(WithMeasuredLinks(preset, profile).intra.bytes_per_s == preset.intra.bytes_per_s);
  profile.point_to_point = {1e-4, 2e9};
  profile.all_reduce = {4e-4, 1e9};
  const Cluster measured = WithMeasuredLinks(preset, profile);
  CHECK(measured.intra.latency_s == 1e-4);
  CHECK(measured.inter.latency_s == preset.inter.latency_s);
  Cluster free = preset;
  free.intra = free.intra_ring = {};
  CHECK(WithMeasuredLinks(free, profile).intra.bytes_per_s == 0);
  CHECK(WithMeasuredLinks(free, profile).intra_ring.bytes_per_s == 0);
  const Plan plan = InlinePlan({.tensor = 2});
  Cluster two = measured;
  two.devices_per_node = 2;
  // Two ranks take what was measured.
  CHECK(AllReduceSeconds(1e6, 2, TensorLink(two, plan)) == Approx(4e-4 + 1e6 / 1e9));
}

}  // namespace
}  // namespace equipoise
