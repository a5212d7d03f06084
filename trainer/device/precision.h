#pragma once

#include <cstdint>
#include <string>

namespace equipoise {

// The type of weights and activations in the computation. Master weights, sums of gradients and the
// optimizer's state are fp32 beside each of them.
enum class Precision { kFp32, kBf16 };

// "fp32", "bf16": the words of train.precision and of profiles.
std::string PrecisionName(Precision precision);
// REQUIRES: one of these words.
Precision ParsePrecision(const std::string& name);
// Bytes of an element.
int64_t ElementBytes(Precision precision);

// The precision for `train.precision`, of plans and of runs: "fp32", "bf16", or "auto", which is
// bf16 on a device with matrix units for it and fp32 elsewhere. REQUIRES: one of these words.
Precision ChoosePrecision(const std::string& setting, bool has_bf16_units);

// Whether this CPU has bf16 matrix units (AMX). Without them bf16 is 5 to 80 times slower than
// fp32.
bool CpuHasBf16MatrixUnits();

// The same of a GPU of this machine: compute capability 8 and later. True without NVIDIA's driver,
// where something else stands for a GPU.
bool GpuHasBf16MatrixUnits(int index);

// The same of what a rank of this machine computes on, by `train.device`: a GPU where there is one
// and the setting is not "cpu", else the CPU.
bool ThisMachineHasBf16MatrixUnits(const std::string& device);

}  // namespace equipoise
