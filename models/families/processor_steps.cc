#include "models/families/processor_steps.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "configs/base/error.h"

namespace equipoise {

void RequireKnownSteps(const Json& json, const char* file, bool* bilinear) {
  constexpr int64_t kBilinear = 2, kBicubic = 3;  // PIL.Image.Resampling
  const auto refuse = [file](const char* key, const std::string& what) {
    throw DataError(fmt::format("{}: {}: {}", file, key, what));
  };
  for (const char* key : {"do_resize", "do_rescale", "do_normalize"}) {
    if (!GetBool(json, key, file, true)) refuse(key, "false is not supported; set it to true");
  }
  const int64_t resample = GetInt(json, "resample", file, kBicubic);
  if (bilinear != nullptr) {
    *bilinear = resample == kBilinear;
    if (resample != kBilinear && resample != kBicubic) {
      refuse("resample",
             fmt::format("only {}, bilinear, and {}, bicubic, are supported", kBilinear, kBicubic));
    }
  } else if (resample != kBicubic) {
    refuse("resample", fmt::format("only {}, bicubic, is supported", kBicubic));
  }
  const double factor = GetNumber(json, "rescale_factor", file, 1.0 / 255);
  if (std::abs(factor * 255 - 1) > 1e-6) refuse("rescale_factor", "only 1/255 is supported");
}

}  // namespace equipoise
