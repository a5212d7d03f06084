#include "trainer/device/bf16_units.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "configs/base/error.h"
#include "trainer/device/nvidia_driver.h"

namespace equipoise {
namespace {

bool HasGpu(const NvidiaDriver& driver) {
  try {
    return driver.CountGpus() > 0;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

bool CpuHasBf16MatrixUnits() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  return (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
#else
  return false;
#endif
}

bool GpuHasBf16MatrixUnits(int index) {
  constexpr int kAmpere = 8;
  const NvidiaDriver driver;
  return !driver.found() || driver.MajorCapability(index) >= kAmpere;
}

bool GpuIsHopperOrLater(int index) {
  constexpr int kHopper = 9;
  const NvidiaDriver driver;
  return driver.found() && driver.MajorCapability(index) >= kHopper;
}

bool ThisMachineHasBf16MatrixUnits(const std::string& device) {
  if (device == "cpu" || !HasGpu(NvidiaDriver())) return CpuHasBf16MatrixUnits();
  return GpuHasBf16MatrixUnits(0);
}

}  // namespace equipoise
