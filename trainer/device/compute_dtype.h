#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "trainer/settings/precision.h"

namespace equipoise {

// LibTorch's type for a precision.
at::ScalarType DtypeOf(Precision precision);

// ChoosePrecision() for the device that OpenComputeDevice() gave.
Precision PrecisionOn(at::Device device, const std::string& setting);

}  // namespace equipoise
