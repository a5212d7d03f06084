#include "trainer/device/precision.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>

#include "configs/base/error.h"
#include "trainer/device/nvidia_driver.h"

namespace equipoise {
namespace {

struct PrecisionKind {
  Precision precision;
  const char* name;
  int64_t element_bytes;
};

constexpr std::array kPrecisions = {PrecisionKind{Precision::kFp32, "fp32", 4},
                                    PrecisionKind{Precision::kBf16, "bf16", 2}};

const PrecisionKind& KindOf(Precision precision) {
  return *std::find_if(kPrecisions.begin(), kPrecisions.end(),
                       [&](const PrecisionKind& kind) { return kind.precision == precision; });
}

bool HasGpu(const NvidiaDriver& driver) {
  try {
    return driver.CountGpus() > 0;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::string PrecisionName(Precision precision) { return KindOf(precision).name; }

Precision ParsePrecision(const std::string& name) {
  const auto* kind = std::find_if(kPrecisions.begin(), kPrecisions.end(),
                                  [&](const PrecisionKind& k) { return name == k.name; });
  EQUIPOISE_CHECK(kind != kPrecisions.end(), name);
  return kind->precision;
}

int64_t ElementBytes(Precision precision) { return KindOf(precision).element_bytes; }

Precision ChoosePrecision(const std::string& setting, bool has_bf16_units) {
  if (setting != "auto") return ParsePrecision(setting);
  return has_bf16_units ? Precision::kBf16 : Precision::kFp32;
}

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

bool ThisMachineHasBf16MatrixUnits(const std::string& device) {
  if (device == "cpu" || !HasGpu(NvidiaDriver())) return CpuHasBf16MatrixUnits();
  return GpuHasBf16MatrixUnits(0);
}

}  // namespace equipoise
