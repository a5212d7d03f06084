#include "trainer/device/compute_dtype.h"

#include "configs/base/error.h"
#include "trainer/device/bf16_units.h"

namespace equipoise {

at::ScalarType DtypeOf(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return at::kFloat;
    case Precision::kBf16:
      return at::kBFloat16;
    case Precision::kFp16:
      return at::kHalf;
  }
  EQUIPOISE_CHECK(false, "precision ", static_cast<int>(precision));
}

at::ScalarType DtypeOf(MomentPrecision moments) {
  switch (moments) {
    case MomentPrecision::kFp32:
      return at::kFloat;
    case MomentPrecision::kBf16:
      return at::kBFloat16;
    case MomentPrecision::k8Bit:
      return at::kByte;
  }
  EQUIPOISE_CHECK(false, "moments ", static_cast<int>(moments));
}

Precision PrecisionOn(at::Device device, const std::string& setting) {
  if (setting != "auto") return ParsePrecision(setting);  // needs no query of the device
  return ChoosePrecision(
      setting, device.is_cpu() ? CpuHasBf16MatrixUnits() : GpuHasBf16MatrixUnits(device.index()));
}

}  // namespace equipoise
