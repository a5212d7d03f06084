#include "trainer/settings/precision.h"

#include "configs/base/error.h"

namespace equipoise {

std::vector<std::string> PrecisionSettings() {
  std::vector<std::string> settings = EnumNames<Precision>();
  settings.insert(settings.begin(), "auto");
  return settings;
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
