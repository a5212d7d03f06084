#include "models/families/processor_steps.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>

#include "configs/base/error.h"

namespace equipoise {
namespace {

[[noreturn]] void Refuse(const char* file, const char* key, const std::string& what) {
  throw DataError(fmt::format("{}: {}: {}", file, key, what));
}

std::array<float, 3> ThreeNumbers(const Json& json, const char* key, const char* file,
                                  const std::array<float, 3>& fallback) {
  if (!json.contains(key) || json[key].is_null()) return fallback;
  const Json& list = json[key];
  std::array<float, 3> numbers{};
  const bool three = list.is_array() && list.size() == numbers.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!three || !list[i].is_number()) Refuse(file, key, "not a list of three numbers");
    numbers[i] = list[i].get<float>();
  }
  return numbers;
}

}  // namespace

void RequireKnownSteps(const Json& json, const char* file, bool* bilinear) {
  constexpr int64_t kBilinear = 2, kBicubic = 3;  // PIL.Image.Resampling
  const auto refuse = [file](const char* key, const std::string& what) { Refuse(file, key, what); };
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

void RequireSide(const Json& json, const char* key, int64_t side, const char* file) {
  if (!json.contains(key) || json[key].is_null()) return;
  const Json& value = json[key];
  const auto right = [side](const Json& number) {
    return number.is_number_integer() && number.get<int64_t>() == side;
  };
  bool fits = right(value);
  if (value.is_object() && !value.empty()) {
    fits = true;
    for (const char* part : {"shortest_edge", "height", "width"}) {
      fits = fits && (!value.contains(part) || right(value[part]));
    }
  }
  if (!fits) {
    Refuse(file, key, fmt::format("{} is not the encoder's image_size, {}", value.dump(), side));
  }
}

void ReadNormalization(const Json& json, const char* file, ImageSpec* images) {
  images->mean = ThreeNumbers(json, "image_mean", file, images->mean);
  images->deviation = ThreeNumbers(json, "image_std", file, images->deviation);
  for (const float deviation : images->deviation) {
    if (!(deviation > 0)) Refuse(file, "image_std", "must be above 0");
  }
}

}  // namespace equipoise
