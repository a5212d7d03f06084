#include "trainer/precision.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "configs/error.h"
#include "trainer/nvidia_driver.h"

namespace equipoise {

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

at::ScalarType ComputeDtype(const std::string& precision, at::Device device) {
  if (precision == "auto") {
    const bool has_units =
        device.is_cpu() ? CpuHasBf16MatrixUnits() : GpuHasBf16MatrixUnits(device.index());
    return has_units ? at::kBFloat16 : at::kFloat;
  }
  EQUIPOISE_CHECK(precision == "fp32" || precision == "bf16", precision);
  return precision == "bf16" ? at::kBFloat16 : at::kFloat;
}

std::string PrecisionName(at::ScalarType dtype) { return dtype == at::kBFloat16 ? "bf16" : "fp32"; }

}  // namespace equipoise
