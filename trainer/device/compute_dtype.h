#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "trainer/settings/precision.h"

namespace equipoise {

// The LibTorch dtype of a precision.
at::ScalarType DtypeOf(Precision precision);
// The dtype that stands for a precision of moments in AdamWOptions.
at::ScalarType DtypeOf(MomentPrecision moments);

// ChoosePrecision() for the device that OpenComputeDevice() returned.
Precision PrecisionOn(at::Device device, const std::string& setting);

}  // namespace equipoise
