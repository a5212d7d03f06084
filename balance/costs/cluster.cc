#include "balance/costs/cluster.h"

#include <fmt/format.h>

#include <cctype>
#include <string_view>
#include <type_traits>

#include "configs/base/error.h"
#include "configs/base/nearest.h"

namespace equipoise {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kShareOfHost = 0.9;  // the rest: the system, loaders, caches

struct Preset {
  const char* name;
  // In the driver's name of the device, both; "" matches any.
  const char* device;
  const char* detail;
  int gpus_per_node;
  double peak_tflops, hbm_gb_s, memory_gb;
  double intra_gb_s, intra_latency_us, inter_gb_s, inter_latency_us;
  double gemm, attention, memory, launch_us;
  int multiprocessors;
  double reserve_share;
  double price;  // list price of a GPU hour on demand, USD; 0: none that we know
};

// Peaks (dense bf16, fp32 accumulation), memories and numbers of multiprocessors are the vendors';
// links are what NCCL reaches in one direction, between nodes over one adapter a device. Sources,
// those of prices and efficiencies too: docs/cost_model.md. More specific names come first.
const std::vector<Preset>& Presets() {
  static const std::vector<Preset> kPresets = {
      {kLocalPreset, "", "", 1, 0.1, 10, 4, 5, 20, 5, 20, 0.8, 0.4, 0.8, 5, 0, 0, 0},
      {"a100-40g", "A100", "40GB", 8, 312, 1555, 39.4, 230, 2, 23, 6, 0.81, 0.6, 0.8, 4, 108, 0.06,
       1.29},
      {"a100-80g", "A100", "", 8, 312, 2039, 79.1, 230, 2, 23, 6, 0.81, 0.6, 0.8, 4, 108, 0.06,
       1.79},
      {"a800", "A800", "", 8, 312, 2039, 79.1, 153, 2, 23, 6, 0.81, 0.6, 0.8, 4, 108, 0.06, 0},
      {"h100-pcie", "H100", "PCIe", 8, 756, 2000, 79.1, 45, 3, 46, 6, 0.7, 0.33, 0.8, 4, 114, 0.06,
       2.49},
      {"h100-nvl", "H100", "NVL", 8, 835, 3938, 93.1, 45, 3, 46, 6, 0.71, 0.33, 0.8, 4, 132, 0.06,
       3.07},
      {"h100-80g", "H100", "", 8, 989, 3350, 79.1, 370, 2, 46, 6, 0.71, 0.33, 0.8, 4, 132, 0.06,
       2.99},
      {"h800", "H800", "", 8, 989, 3350, 79.1, 164, 2, 46, 6, 0.71, 0.33, 0.8, 4, 132, 0.06, 0},
      {"h200", "H200", "", 8, 989, 4800, 139.7, 370, 2, 46, 6, 0.71, 0.33, 0.8, 4, 132, 0.06, 3.99},
      {"b200", "B200", "", 8, 2250, 7700, 178.3, 740, 2, 46, 6, 0.7, 0.2, 0.8, 4, 148, 0.06, 4.99},
      {"gb200", "GB200", "", 72, 2500, 8000, 184, 740, 2, 46, 6, 0.7, 0.2, 0.8, 4, 148, 0.06, 10.5},
      {"l40s", "L40S", "", 8, 362, 864, 44.5, 20, 5, 46, 6, 0.7, 0.5, 0.8, 4, 142, 0.06, 0.86},
      {"rtx-4090", "RTX 4090", "", 8, 165, 1008, 23.5, 12, 10, 12, 10, 0.9, 0.6, 0.8, 4, 128, 0.06,
       0.69},
      {"rtx-5090", "RTX 5090", "", 8, 209, 1792, 31.3, 24, 10, 24, 10, 0.9, 0.6, 0.8, 4, 170, 0.06,
       0.89},
      {"mi300x", "MI300X", "", 8, 1307, 5300, 191.5, 310, 3, 46, 6, 0.5, 0.25, 0.7, 6, 304, 0.06,
       2.49},
  };
  return kPresets;
}

// The hosts of presets: GiB of a machine, GB/s of its memory channels, GB/s of a device's link. By
// docs/cost_model.md, as above.
struct HostPreset {
  const char* name;
  double memory_gb, memory_gb_s, link_gb_s;
};

const HostPreset& HostOf(const std::string& preset) {
  static const std::vector<HostPreset> kHosts = {
      {kLocalPreset, 4, 20, 12},   {"a100-40g", 1152, 409, 12},  {"a100-80g", 1152, 409, 12},
      {"a800", 1152, 409, 12},     {"h100-pcie", 1024, 614, 25}, {"h100-nvl", 1024, 614, 25},
      {"h100-80g", 2048, 614, 25}, {"h800", 2048, 614, 25},      {"h200", 2048, 614, 25},
      {"b200", 2048, 716, 25},     {"gb200", 16093, 18432, 180}, {"l40s", 1536, 409, 12},
      {"rtx-4090", 512, 204, 12},  {"rtx-5090", 512, 204, 25},   {"mi300x", 1850, 614, 25},
  };
  for (const HostPreset& host : kHosts) {
    if (preset == host.name) return host;
  }
  EQUIPOISE_CHECK(false, "no host of ", preset);
  return kHosts.front();
}

// Hopper's and Blackwell's fp8 units, whose peak is twice that of bf16: what a large product with
// scales for each row gained of it on an H200 (docs/gpu_runs).
double Fp8SpeedupOf(std::string_view preset) {
  for (const std::string_view family : {"h100", "h800", "h200", "b200", "gb200"}) {
    if (preset.starts_with(family)) return 1.9;
  }
  return 0;
}

// What a name without its detail stands for ("h100"), else the nearest.
std::string NearestPreset(const std::string& name, const std::vector<std::string>& names) {
  std::string first;
  for (const std::string& known : names) {
    if (known == name + "-80g") return known;
    if (first.empty() && known.starts_with(name + "-")) first = known;
  }
  if (!first.empty()) return first;
  const std::string nearest = NearestName(name, names);
  // With one digit changed, h300 is another device than h200 and no typing error.
  const auto device = [](const std::string& text) { return text.substr(0, text.find('-')); };
  const bool numbered = name.find_first_of("0123456789") != std::string::npos;
  return numbered && device(nearest) != device(name) ? "" : nearest;
}

const Preset& FindPreset(const std::string& name) {
  for (const Preset& preset : Presets()) {
    if (name == preset.name) return preset;
  }
  const std::vector<std::string> names = ClusterPresetNames();
  const std::string nearest = NearestPreset(name, names);
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  const std::string advice = nearest.empty() ? fmt::format(
                                                   "use one of {}, and numbers of your own such as "
                                                   "cluster.peak_tflops and cluster.memory_gb",
                                                   all)
                                             : fmt::format("did you mean '{}'?", nearest);
  throw ConfigError(fmt::format("cluster.preset: no preset '{}'; {}", name, advice));
}

// Name of the preset and the section's values for devices, such as "a100-80g with peak_tflops 165,
// memory_gb 24".
std::string NameOf(ClusterConfig config) {
  std::string numbers;
  const std::string price = "price_per_gpu_hour";
  auto collect = [&](const char* key, auto& value, const char*, const Rule& = {}) {
    using Value = std::decay_t<decltype(value)>;
    const bool places = key == std::string("nodes") || key == std::string("gpus_per_node");
    const bool host = key == std::string("host_gb");
    if constexpr (std::is_same_v<Value, std::optional<double>> ||
                  std::is_same_v<Value, std::optional<int64_t>>) {
      if (!value || places || host || key == price) return;
      numbers += fmt::format("{}{} {:g}", numbers.empty() ? " with " : ", ", key,
                             static_cast<double>(*value));
    }
  };
  config.VisitFields(collect);
  return config.preset + numbers;
}

LinkModel Link(double latency_us, double gb_s) { return {1e-6 * latency_us, 1e9 * gb_s}; }

}  // namespace

std::vector<std::string> ClusterPresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.emplace_back(preset.name);
  return names;
}

std::string ClusterPresetFor(const std::string& device) {
  for (const Preset& preset : Presets()) {
    const std::string_view word = preset.device;
    const size_t at = word.empty() ? std::string::npos : device.find(word);
    if (at == std::string::npos || device.find(preset.detail) == std::string::npos) continue;
    // GH200 is another device than H200.
    if (at == 0 || std::isalnum(static_cast<unsigned char>(device[at - 1])) == 0)
      return preset.name;
  }
  return "";
}

Cluster MakeCluster(const ClusterConfig& config) {
  const Preset& preset = FindPreset(config.preset);
  Cluster cluster;
  cluster.name = NameOf(config);
  cluster.device = preset.device;
  cluster.nodes = static_cast<int>(config.nodes.value_or(1));
  cluster.devices_per_node = static_cast<int>(config.gpus_per_node.value_or(preset.gpus_per_node));
  cluster.peak_flops = 1e12 * config.peak_tflops.value_or(preset.peak_tflops);
  cluster.fp8_speedup = Fp8SpeedupOf(config.preset);
  cluster.memory_bytes_per_s = 1e9 * config.hbm_gb_s.value_or(preset.hbm_gb_s);
  cluster.memory_bytes = static_cast<int64_t>(kGiB * config.memory_gb.value_or(preset.memory_gb));
  cluster.intra = Link(config.intra_latency_us.value_or(preset.intra_latency_us),
                       config.intra_gb_s.value_or(preset.intra_gb_s));
  cluster.intra_ring = cluster.intra;
  cluster.inter = Link(config.inter_latency_us.value_or(preset.inter_latency_us),
                       config.inter_gb_s.value_or(preset.inter_gb_s));
  cluster.island_bytes_per_s = 1e9 * config.island_gb_s.value_or(0);
  const HostPreset& host = HostOf(config.preset);
  cluster.host.bytes =
      static_cast<int64_t>(kGiB * config.host_gb.value_or(kShareOfHost * host.memory_gb));
  cluster.host.bytes_per_s = 1e9 * config.host_gb_s.value_or(host.memory_gb_s);
  // Presets' links are shared by two devices; one that is alone on its machine has all of it.
  const bool alone = cluster.devices_per_node == 1 && config.preset != kLocalPreset;
  cluster.host.link_bytes_per_s = 1e9 * config.pcie_gb_s.value_or((alone ? 2 : 1) * host.link_gb_s);
  cluster.price_per_device_hour = config.price_per_gpu_hour.value_or(preset.price);
  cluster.lists_price = !config.price_per_gpu_hour && preset.price > 0;
  cluster.gemm_efficiency = config.gemm_efficiency.value_or(preset.gemm);
  cluster.attention_efficiency = config.attention_efficiency.value_or(preset.attention);
  cluster.memory_efficiency = config.memory_efficiency.value_or(preset.memory);
  cluster.launch_s = 1e-6 * config.launch_us.value_or(preset.launch_us);
  cluster.multiprocessors =
      static_cast<int>(config.multiprocessors.value_or(preset.multiprocessors));
  cluster.reserve_share = config.reserve_share.value_or(preset.reserve_share);
  return cluster;
}

}  // namespace equipoise
