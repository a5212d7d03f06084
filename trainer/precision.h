#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

namespace equipoise {

// Whether this CPU has bf16 matrix units (AMX). Without them bf16 is 5 to 80 times slower than
// fp32.
bool CpuHasBf16MatrixUnits();

// The same of a GPU that OpenComputeDevice() gave: compute capability 8 and later. True without
// NVIDIA's driver, where something else stands for a GPU.
bool GpuHasBf16MatrixUnits(int index);

// The compute dtype for `train.precision`: "fp32", "bf16", or "auto" (bf16 where the device has
// matrix units for it, else fp32). REQUIRES: one of these.
at::ScalarType ComputeDtype(const std::string& precision, at::Device device);

// "fp32" or "bf16".
std::string PrecisionName(at::ScalarType dtype);

}  // namespace equipoise
