#include "parallel/comm/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <thread>
#include <vector>

#include "configs/base/control_group.h"

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

int64_t ProcessorShare(int64_t allowed, int sharing, std::optional<double> quota, int processes) {
  int64_t share = allowed / std::max(sharing, 1);
  if (quota) {
    const auto whole = static_cast<int64_t>(std::ceil(*quota));
    share = std::min(share, whole / std::max(processes, 1));
  }
  return std::max<int64_t>(share, 1);
}

int64_t ProcessorShare(int sharing, int processes) {
  return ProcessorShare(AllowedProcessors().count, sharing, ProcessorLimit(), processes);
}

}  // namespace equipoise
