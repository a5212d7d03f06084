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

struct Preset {
  const char* name;
  const char* device;
  int gpus_per_node;
  double peak_tflops, hbm_gb_s, memory_gb;
  double intra_gb_s, intra_latency_us, inter_gb_s, inter_latency_us;
  double gemm, attention, memory, launch_us;
  int multiprocessors;
  double reserve_share;
};

// Peaks are the vendor's for dense bf16, memory is what the driver reports, links are one direction
// of NVLink 3 (A100) or 4 and of one 200 or 400 Gb/s adapter a device. Efficiencies and their
// sources: docs/cost_model.md.
const std::vector<Preset>& Presets() {
  static const std::vector<Preset> kPresets = {
      {kLocalPreset, "", 1, 0.1, 10, 4, 5, 20, 5, 20, 0.8, 0.4, 0.8, 5, 0, 0},
      {"a100-80g", "A100", 8, 312, 2039, 79.1, 300, 8, 25, 20, 0.8, 0.55, 0.85, 4, 108, 0.06},
      {"h100-80g", "H100", 8, 989, 3350, 79.1, 450, 8, 50, 20, 0.7, 0.45, 0.85, 4, 132, 0.06},
      {"h200", "H200", 8, 989, 4800, 139.7, 450, 8, 50, 20, 0.7, 0.45, 0.85, 4, 132, 0.06},
  };
  return kPresets;
}

const Preset& FindPreset(const std::string& name) {
  for (const Preset& preset : Presets()) {
    if (name == preset.name) return preset;
  }
  const std::vector<std::string> names = ClusterPresetNames();
  std::string nearest = NearestName(name, names);
  // With one letter changed, b200 is another device than h200 and no typing error.
  const auto device = [](const std::string& text) { return text.substr(0, text.find('-')); };
  const bool numbered = name.find_first_of("0123456789") != std::string::npos;
  if (numbered && device(nearest) != device(name)) nearest = "";
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
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::optional<double>>) {
      if (!value || key == price) return;
      numbers += fmt::format("{}{} {:g}", numbers.empty() ? " with " : ", ", key, *value);
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
    if (at == std::string::npos) continue;
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
  cluster.memory_bytes_per_s = 1e9 * config.hbm_gb_s.value_or(preset.hbm_gb_s);
  cluster.memory_bytes = static_cast<int64_t>(kGiB * config.memory_gb.value_or(preset.memory_gb));
  cluster.intra = Link(config.intra_latency_us.value_or(preset.intra_latency_us),
                       config.intra_gb_s.value_or(preset.intra_gb_s));
  cluster.intra_ring = cluster.intra;
  cluster.inter = Link(config.inter_latency_us.value_or(preset.inter_latency_us),
                       config.inter_gb_s.value_or(preset.inter_gb_s));
  cluster.price_per_device_hour = config.price_per_gpu_hour.value_or(0);
  cluster.gemm_efficiency = config.gemm_efficiency.value_or(preset.gemm);
  cluster.attention_efficiency = config.attention_efficiency.value_or(preset.attention);
  cluster.memory_efficiency = config.memory_efficiency.value_or(preset.memory);
  cluster.launch_s = 1e-6 * config.launch_us.value_or(preset.launch_us);
  cluster.multiprocessors = preset.multiprocessors;
  cluster.reserve_share = preset.reserve_share;
  return cluster;
}

}  // namespace equipoise
