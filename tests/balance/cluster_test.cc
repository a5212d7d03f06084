#include "balance/costs/cluster.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <utility>

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
  CHECK(cluster.intra.bytes_per_s == 230e9);
  CHECK(cluster.price_per_device_hour == 1.79);
  CHECK(cluster.lists_price);
  CHECK_FALSE(FromYaml("{preset: a100-80g, price_per_gpu_hour: 0}").lists_price);
  CHECK(FromYaml("{}").price_per_device_hour == 0);
}

TEST_CASE("every preset is a device", "[balance][cpu]") {
  for (const std::string& name : ClusterPresetNames()) {
    INFO(name);
    if (name == kLocalPreset) continue;
    const Cluster cluster = FromYaml("{preset: " + name + "}");
    CHECK(cluster.peak_flops > 100e12);
    CHECK(cluster.memory_bytes_per_s > 800e9);
    CHECK(cluster.memory_bytes > int64_t{20} << 30);
    CHECK(cluster.multiprocessors > 100);
    CHECK(cluster.intra.bytes_per_s >= cluster.inter.bytes_per_s / 3);
    CHECK(cluster.memory_efficiency < 1);
    // A link is slower than the memory at either end.
    CHECK(cluster.host.bytes > int64_t{400} << 30);
    CHECK(cluster.host.bytes_per_s > cluster.host.link_bytes_per_s);
    CHECK(cluster.host.link_bytes_per_s > 10e9);
  }
}

TEST_CASE("the host's memory is the preset's, or as given", "[balance][cpu]") {
  const Cluster cluster = FromYaml("{preset: h100-80g}");
  CHECK(cluster.host.bytes == static_cast<int64_t>(0.9 * 2048 * (1 << 30)));
  const Cluster given = FromYaml("{preset: h100-80g, host_gb: 256, host_gb_s: 300, pcie_gb_s: 50}");
  CHECK(given.host.bytes == int64_t{256} << 30);
  CHECK(given.host.bytes_per_s == 300e9);
  CHECK(given.host.link_bytes_per_s == 50e9);
  // Two devices share a link, as presets have it.
  CHECK(FromYaml("{preset: h100-80g}").host.link_bytes_per_s == 25e9);
  CHECK(FromYaml("{preset: h100-80g, gpus_per_node: 1}").host.link_bytes_per_s == 50e9);
}

TEST_CASE("a GPU of one's own is typed in", "[balance][cpu]") {
  const Cluster cluster = FromYaml("{peak_tflops: 71, multiprocessors: 46, reserve_share: 0.1}");
  CHECK(cluster.multiprocessors == 46);
  CHECK(cluster.reserve_share == 0.1);
  CHECK(cluster.name == "local with peak_tflops 71, multiprocessors 46, reserve_share 0.1");
}

TEST_CASE("a device's name gives its preset", "[balance][cpu]") {
  const std::pair<const char*, const char*> kNames[] = {{"NVIDIA A100-SXM4-40GB", "a100-40g"},
                                                        {"NVIDIA A100-SXM4-80GB", "a100-80g"},
                                                        {"NVIDIA H100 80GB HBM3", "h100-80g"},
                                                        {"NVIDIA H100 PCIe", "h100-pcie"},
                                                        {"NVIDIA H100 NVL", "h100-nvl"},
                                                        {"NVIDIA GB200", "gb200"},
                                                        {"NVIDIA B200", "b200"},
                                                        {"NVIDIA GH200 480GB", ""},
                                                        {"NVIDIA GeForce RTX 4090", "rtx-4090"},
                                                        {"NVIDIA L40S", "l40s"},
                                                        {"AMD Instinct MI300X", "mi300x"},
                                                        {"NVIDIA GeForce RTX 3060", ""}};
  for (const auto& [device, preset] : kNames) {
    INFO(device);
    CHECK(ClusterPresetFor(device) == preset);
  }
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
                    "cluster.preset: no preset 'tpu'; use one of local, a100-40g, a100-80g, a800, "
                    "h100-pcie, h100-nvl, h100-80g, h800, h200, b200, gb200, l40s, rtx-4090, "
                    "rtx-5090, mi300x, and numbers of your own such as cluster.peak_tflops and "
                    "cluster.memory_gb");
  CHECK_THROWS_WITH(FromYaml("{preset: h100}"), Catch::Contains("did you mean 'h100-80g'?"));
  CHECK_THROWS_WITH(FromYaml("{preset: rtx}"), Catch::Contains("did you mean 'rtx-4090'?"));
  CHECK_THROWS_WITH(FromYaml("{preset: b300}"), Catch::Contains("use one of local"));
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
  CHECK(TensorLink(cluster, plan).bytes_per_s == 230e9);
  CHECK(PipelineLink(cluster, plan, 0, 3).bytes_per_s == 230e9);
  // One data rank a node: its one adapter.
  CHECK(DataLink(cluster, plan).bytes_per_s == 23e9);
  plan = InlinePlan({.data = 32, .pipeline = 1, .tensor = 2});
  // Four of each group in a node.
  CHECK(DataLink(cluster, plan).bytes_per_s == 92e9);
  plan = InlinePlan({.data = 4, .pipeline = 8, .tensor = 2});
  CHECK(PipelineLink(cluster, plan, 0, 3).bytes_per_s == 230e9);
  CHECK(PipelineLink(cluster, plan, 3, 4).bytes_per_s == 23e9);
}

TEST_CASE("a ring over nodes leaves one in its ranks there", "[balance][cpu]") {
  const Cluster cluster = FromYaml("{preset: a100-80g, nodes: 8}");
  const LinkModel link = DataLink(cluster, InlinePlan({.data = 64}));
  CHECK(link.latency_s == Approx((6e-6 + 7 * 2e-6) / 8));
}

TEST_CASE("kernels beside a collective take longer", "[balance][cpu]") {
  const Cluster h100 = FromYaml("{preset: h100-80g}");
  CHECK(BesideSeconds(1, {}, h100) == 1);
  // Gathered at the speed of the links: products fall from 80 to 47 % of the peak, as measured.
  const double slower = BesideSeconds(1, {1, h100.intra.bytes_per_s}, h100);
  CHECK(1 / slower == Approx(47.0 / 80).epsilon(0.25));
  CHECK(BesideSeconds(1, {0.5, 0.5 * h100.intra.bytes_per_s}, h100) < slower);
  CHECK(BesideSeconds(1, {5, 1e9}, h100) == 5);
  // A CPU's cores do one or the other.
  CHECK(BesideSeconds(1, {1, 1e9}, FromYaml("{}")) == 1);
}

TEST_CASE("the more machines, the likelier a slow one", "[balance][cpu]") {
  const Cluster cluster = FromYaml("{preset: a100-80g}");
  CHECK(StragglerFactor(cluster, 8) == Approx(1.0005));
  CHECK(StragglerFactor(cluster, 1024) == Approx(1 + 0.1 * (1 - std::pow(0.995, 128))));
  CHECK(StragglerFactor(FromYaml("{}"), 1024) == 1);
}

TEST_CASE("a profile's links take the place of the preset's inside a node", "[balance][cpu]") {
  Profile profile;
  const Cluster preset = FromYaml("{}");
  CHECK(WithMeasuredLinks(preset, profile).intra.bytes_per_s == preset.intra.bytes_per_s);
  profile.point_to_point = {1e-4, 2e9};
  profile.all_reduce = {4e-4, 1e9};
  CHECK(WithMeasuredLinks(preset, profile).host.link_bytes_per_s == preset.host.link_bytes_per_s);
  profile.host_link_bytes_per_s = 3e10;
  const Cluster measured = WithMeasuredLinks(preset, profile);
  CHECK(measured.host.link_bytes_per_s == 3e10);
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
