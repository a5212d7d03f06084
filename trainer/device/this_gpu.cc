#include "trainer/device/this_gpu.h"

#include "configs/base/error.h"
#include "trainer/device/nvidia_driver.h"

namespace equipoise {

std::optional<GpuFacts> ThisGpu(const std::string& device, int index) {
  const NvidiaDriver driver;
  if (device == "cpu" || !driver.found()) return std::nullopt;
  try {
    const int count = driver.CountGpus();
    return GpuFacts{driver.NameOf(index), driver.MemoryOf(index), count};
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace equipoise
