#pragma once

#include <string>

namespace equipoise {

// Whether this CPU has bf16 matrix units (AMX). Without them bf16 is 5 to 80 times slower than
// fp32.
bool CpuHasBf16MatrixUnits();

// Whether a GPU of this machine has them: compute capability 8 and later. True without NVIDIA's
// driver, where something else stands for a GPU.
bool GpuHasBf16MatrixUnits(int index);

// Whether the device that a rank of this machine computes on has them. `device`: train.device; a
// GPU where there is one and the setting is not "cpu", else the CPU.
bool ThisMachineHasBf16MatrixUnits(const std::string& device);

}  // namespace equipoise
