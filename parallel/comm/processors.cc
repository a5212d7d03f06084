#include "parallel/comm/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

namespace equipoise {

ProcessorSet AllowedProcessors() {
  ProcessorSet set;
  set.count = std::max<int64_t>(1, std::thread::hardware_concurrency());
  std::vector<cpu_set_t> mask(8);  // of up to 8,192 processors
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, bytes, mask.data()) != 0) return set;
  set.count = std::max(1, CPU_COUNT_S(bytes, mask.data()));
  const std::string_view bits(reinterpret_cast<const char*>(mask.data()), bytes);
  set.hash = std::hash<std::string_view>()(bits);
  return set;
}

std::optional<double> ProcessorQuota(const std::string& cpu_max) {
  std::istringstream words(cpu_max);  // "QUOTA PERIOD" in microseconds, or "max PERIOD"
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

int64_t ProcessorShare(int64_t allowed, int sharing, std::optional<double> quota, int processes) {
  int64_t share = allowed / std::max(sharing, 1);
  if (quota) {
    const auto whole = static_cast<int64_t>(std::ceil(*quota));
    share = std::min(share, whole / std::max(processes, 1));
  }
  return std::max<int64_t>(share, 1);
}

int64_t ProcessorShare(int sharing, int processes) {
  // In a container its own cgroup is the root of what it sees; the machine's root has no such file.
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string text;
  std::getline(file, text);
  return ProcessorShare(AllowedProcessors().count, sharing, ProcessorQuota(text), processes);
}

}  // namespace equipoise
