#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/yaml/fields.h"
#include "parallel/schedule/simulate.h"

namespace equipoise {

// The preset for this machine.
inline constexpr const char* kLocalPreset = "local";

// The `cluster` section: a preset, and values that replace those of the preset. GB are 10^9 bytes,
// GiB 2^30.
struct ClusterConfig {
  std::string preset = kLocalPreset;
  std::optional<int64_t> nodes, gpus_per_node, multiprocessors;
  std::optional<double> peak_tflops, hbm_gb_s, memory_gb;
  std::optional<double> intra_gb_s, intra_latency_us, inter_gb_s, inter_latency_us, island_gb_s;
  std::optional<double> host_gb, host_gb_s, pcie_gb_s;
  std::optional<double> price_per_gpu_hour;
  std::optional<double> gemm_efficiency, attention_efficiency, memory_efficiency, launch_us;
  std::optional<double> reserve_share;
  std::string profile;
  bool force_profile = false;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit(
        "preset", preset,
        "the devices: a100-40g, a100-80g, a800, h100-80g, h100-pcie, h100-nvl, h800, h200, b200, "
        "gb200, l40s, rtx-4090, rtx-5090, mi300x (plans alone), or local (this machine: its GPUs, "
        "or each rank a core)");
    visit("nodes", nodes, "machines; absent = 1", Between(1, 1e6));
    visit("gpus_per_node", gpus_per_node, "devices of a machine", Between(1, 1024));
    visit("peak_tflops", peak_tflops, "10^12 FLOP/s of a device in matrix products",
          Between(1e-3, 1e6));
    visit("hbm_gb_s", hbm_gb_s, "GB/s between a device and its memory", Between(1e-3, 1e6));
    visit("memory_gb", memory_gb, "memory of a device that a run may use, GiB", Between(1e-3, 1e6));
    visit("intra_gb_s", intra_gb_s, "GB/s of a device in one direction, inside a machine",
          Between(1e-3, 1e6));
    visit("intra_latency_us", intra_latency_us, "microseconds of a message inside a machine",
          Between(0, 1e6));
    visit("inter_gb_s", inter_gb_s, "GB/s of a device in one direction, between machines",
          Between(1e-3, 1e6));
    visit("inter_latency_us", inter_latency_us, "microseconds of a message between machines",
          Between(0, 1e6));
    visit("island_gb_s", island_gb_s,
          "GB/s of a device in one direction, between islands (train.diloco); absent = inter_gb_s, "
          "or intra_gb_s where all islands are in one machine",
          Between(1e-6, 1e6));
    visit(
        "host_gb", host_gb,
        "memory of a machine that train.offload may use, GiB; absent = 0.9 of the preset's, or of "
        "this machine's",
        Between(1e-3, 1e6));
    visit("host_gb_s", host_gb_s, "GB/s between a machine's processors and that memory",
          Between(1e-3, 1e6));
    visit("pcie_gb_s", pcie_gb_s,
          "GB/s of a device in one direction to that memory, while all devices copy",
          Between(1e-3, 1e6));
    visit("price_per_gpu_hour", price_per_gpu_hour,
          "price of a device and hour, in any currency; absent = the preset's list price in USD, "
          "where it has one",
          AtLeast(0));
    visit("gemm_efficiency", gemm_efficiency, "share of the peak that large matrix products reach",
          Between(0.001, 1));
    visit("attention_efficiency", attention_efficiency,
          "share of the peak that attention kernels reach", Between(0.001, 1));
    visit("memory_efficiency", memory_efficiency,
          "share of hbm_gb_s that element-wise kernels reach", Between(0.001, 1));
    visit("launch_us", launch_us, "microseconds that each kernel costs beside its work",
          Between(0, 1e6));
    visit(
        "multiprocessors", multiprocessors,
        "processors of a device among which matrix products are divided; 0 = a CPU, without tiles",
        Between(0, 1e5));
    visit("reserve_share", reserve_share,
          "share of memory_gb kept for the allocator's fragmentation and the device's context",
          Between(0, 0.9));
    visit("profile", profile,
          "file that equipoise profile has made on such a device; absent = times from the numbers "
          "above");
    visit("force_profile", force_profile,
          "use the profile though it is of another device, version, precision or thread count");
  }
};

// The memory of a machine beside that of its devices.
struct HostMemory {
  int64_t bytes = 0;            // that a run may use
  double bytes_per_s = 0;       // bandwidth, of all processors together
  double link_bytes_per_s = 0;  // of a device, in one direction, while all devices copy
};

// The machines that a plan is made for.
struct Cluster {
  std::string name;    // the preset's, with the values that replace some of it
  std::string device;  // contained in the device's name in a matching profile; "": any
  int nodes = 1, devices_per_node = 1;
  double peak_flops = 0;          // FLOP/s of a device in matrix products
  double fp8_speedup = 0;         // of a large product in fp8; 0: the device has no fp8 units
  double memory_bytes_per_s = 0;  // bandwidth of a device's memory
  int64_t memory_bytes = 0;       // of a device
  HostMemory host;                // of a node
  // Links of one device, in one direction, inside a node and between nodes.
  LinkModel intra, inter;
  // The link of a step of a ring collective inside a node.
  LinkModel intra_ring;
  double island_bytes_per_s = 0;     // of a device, between islands; 0: as between their nodes
  double price_per_device_hour = 0;  // 0: unknown
  bool lists_price = false;          // the preset's, in USD; no price of the user's

  // Shares of the peaks that kernels reach, and seconds to launch each.
  double gemm_efficiency = 1, attention_efficiency = 1, memory_efficiency = 1;
  double launch_s = 0;
  // Processors among which the tiles of a matrix product are divided; 0: a CPU, without tiles.
  int multiprocessors = 0;
  // Share of memory_bytes for the allocator's fragmentation and the device's context.
  double reserve_share = 0;

  int num_devices() const { return nodes * devices_per_node; }
};

// The cluster with links that take no time.
inline Cluster WithoutLinks(Cluster cluster) {
  cluster.intra = cluster.intra_ring = cluster.inter = {};  // no limit
  return cluster;
}

// The cluster of a section. Throws ConfigError for an unknown preset, with the nearest name.
Cluster MakeCluster(const ClusterConfig& config);

std::vector<std::string> ClusterPresetNames();

// Name of the preset for a device such as "NVIDIA H200"; empty where there is none.
std::string ClusterPresetFor(const std::string& device);

}  // namespace equipoise
