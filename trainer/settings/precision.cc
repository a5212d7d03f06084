#include "trainer/settings/precision.h"

#include <fmt/format.h>

#include "configs/base/error.h"

namespace equipoise {

std::vector<std::string> PrecisionSettings() {
  std::vector<std::string> settings = EnumNames<Precision>();
  settings.insert(settings.begin(), "auto");
  return settings;
}

void CheckMaster(MasterPrecision master, Precision precision) {
  if (master != MasterPrecision::kNone || precision == Precision::kBf16) return;
  throw ConfigError(fmt::format(
      "train.master: none is for weights in bf16 alone, and this run computes in {}; set "
      "train.precision to bf16, or train.master to fp32",
      ToString(precision)));
}

Precision ParsePrecision(const std::string& name) {
  const auto precision = ParseEnum<Precision>(name);
  EQUIPOISE_CHECK(precision.has_value(), name);
  return *precision;
}

Precision ChoosePrecision(const std::string& setting, bool has_bf16_units) {
  if (setting != "auto") return ParsePrecision(setting);
  return has_bf16_units ? Precision::kBf16 : Precision::kFp32;
}

}  // namespace equipoise
