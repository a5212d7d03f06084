#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/enum_names.h"

namespace equipoise {

// The type of weights and activations in the computation. Master weights, sums of gradients and the
// optimizer's state are fp32 beside each of them.
enum class Precision : uint8_t { kFp32, kBf16 };

// The words of train.precision (beside auto) and of profiles.
constexpr auto NamesOf(Precision) {
  return std::to_array<EnumName<Precision>>(
      {{Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"}});
}

// Bytes of an element.
constexpr int64_t ElementBytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : 2;
}

// The words of train.precision: "auto", and the names of the precisions.
std::vector<std::string> PrecisionSettings();

// The precision of plans and of runs for a setting: "auto" is bf16 on a device with matrix units
// for it and fp32 elsewhere. REQUIRES: one of PrecisionSettings().
Precision ChoosePrecision(const std::string& setting, bool has_bf16_units);

// REQUIRES: the name of a precision.
Precision ParsePrecision(const std::string& name);

}  // namespace equipoise
