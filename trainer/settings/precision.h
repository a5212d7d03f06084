#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "configs/base/enum_names.h"

namespace equipoise {

// The dtype of weights and activations in forward and backward. Accumulated gradients are always
// fp32, and so are master weights where there are some.
enum class Precision : uint8_t { kFp32, kBf16, kFp16 };

// The names in train.precision (besides auto) and in profiles.
constexpr auto NamesOf(Precision) {
  return std::to_array<EnumName<Precision>>(
      {{Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"}, {Precision::kFp16, "fp16"}});
}

// How AdamW's moments are kept; in fp16 most squares of gradients would be 0.
enum class MomentPrecision : uint8_t { kFp32, kBf16, k8Bit };

constexpr auto NamesOf(MomentPrecision) {
  return std::to_array<EnumName<MomentPrecision>>({{MomentPrecision::kFp32, "fp32"},
                                                   {MomentPrecision::kBf16, "bf16"},
                                                   {MomentPrecision::k8Bit, "8bit"}});
}

// What there is of a bf16 weight's master. kNone: nothing, the weights are the only copy, and a
// step rounds them stochastically.
enum class MasterPrecision : uint8_t { kFp32, kNone };

constexpr auto NamesOf(MasterPrecision) {
  return std::to_array<EnumName<MasterPrecision>>(
      {{MasterPrecision::kFp32, "fp32"}, {MasterPrecision::kNone, "none"}});
}

// Throws ConfigError for kNone beside a precision that needs masters: all but bf16.
void CheckMaster(MasterPrecision master, Precision precision);

// Bytes per element.
constexpr int64_t ElementBytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : 2;
}
// The same of a moment; in 8 bits each block of 256 elements has a scale in fp32 besides.
constexpr double ElementBytes(MomentPrecision moments) {
  if (moments == MomentPrecision::k8Bit) return 1 + 4.0 / 256;
  return moments == MomentPrecision::kFp32 ? 4 : 2;
}

// The values of train.precision: "auto", and the names of the precisions.
std::vector<std::string> PrecisionSettings();

// The precision of a run or a plan for a setting: "auto" is bf16 on a device with bf16 matrix units
// and fp32 otherwise, never fp16. REQUIRES: `setting` is one of PrecisionSettings().
Precision ChoosePrecision(const std::string& setting, bool has_bf16_units);

// The precision of a name. REQUIRES: `name` is the name of a precision.
Precision ParsePrecision(const std::string& name);

}  // namespace equipoise
