#pragma once

#include <string>

namespace equipoise {

// Whether this CPU has bf16 matrix units (AMX). Without them bf16 is 5 to 80 times slower than
// fp32.
bool CpuHasBf16MatrixUnits();

// Whether GPU `index` of this machine has bf16 matrix units: compute capability 8 or later. True
// without NVIDIA's driver, when tests simulate a GPU.
bool GpuHasBf16MatrixUnits(int index);

// Whether GPU `index` of this machine is of compute capability 9 or later, with fp8 matrix units.
// False without NVIDIA's driver.
bool GpuIsHopperOrLater(int index);

// Whether the device on which ranks of this machine compute has bf16 matrix units: a GPU if there
// is one and `device` (train.device) is not "cpu", else the CPU.
bool ThisMachineHasBf16MatrixUnits(const std::string& device);

}  // namespace equipoise
