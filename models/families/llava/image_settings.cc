#include "models/families/llava/image_settings.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>

#include "configs/base/error.h"
#include "configs/base/json.h"

namespace equipoise {
namespace {

constexpr char kFile[] = "image processor";
constexpr int64_t kBicubic = 3;  // PIL.Image.Resampling.BICUBIC

[[noreturn]] void Refuse(const char* key, const std::string& what) {
  throw DataError(fmt::format("{}: {}: {}", kFile, key, what));
}

std::array<float, 3> ThreeNumbers(const Json& json, const char* key,
                                  const std::array<float, 3>& fallback) {
  if (!json.contains(key) || json[key].is_null()) return fallback;
  const Json& list = json[key];
  std::array<float, 3> numbers{};
  if (!list.is_array() || list.size() != numbers.size()) Refuse(key, "not a list of three numbers");
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!list[i].is_number()) Refuse(key, "not a list of three numbers");
    numbers[i] = list[i].get<float>();
  }
  return numbers;
}

// A side of `size` or `crop_size`: a number, {"shortest_edge"}, or {"height", "width"}.
void RequireSide(const Json& json, const char* key, int64_t side) {
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
    Refuse(key, fmt::format("{} is not the encoder's image_size, {}", value.dump(), side));
  }
}

bool IsStretched(const Json& json) {
  return json.contains("size") && json["size"].is_object() && json["size"].contains("height");
}

void RequireKnownSteps(const Json& json) {
  for (const char* key : {"do_resize", "do_rescale", "do_normalize"}) {
    if (!GetBool(json, key, kFile, true)) Refuse(key, "false is not supported; set it to true");
  }
  if (GetInt(json, "resample", kFile, kBicubic) != kBicubic) {
    Refuse("resample", fmt::format("only {}, bicubic, is supported", kBicubic));
  }
  const double factor = GetNumber(json, "rescale_factor", kFile, 1.0 / 255);
  if (std::abs(factor * 255 - 1) > 1e-6) Refuse("rescale_factor", "only 1/255 is supported");
}

ImageSpec::Fit FitOf(const Json& json, ImageSpec::Fit own) {
  if (GetBool(json, "do_pad", kFile, false)) return ImageSpec::Fit::kPad;
  if (IsStretched(json)) return ImageSpec::Fit::kStretch;
  const bool sized = json.contains("size") && !json["size"].is_null();
  if (!sized && !json.contains("do_center_crop")) return own;
  if (!GetBool(json, "do_center_crop", kFile, true)) {
    Refuse("do_center_crop",
           "false leaves no square; set it to true, or size to a height and a "
           "width");
  }
  return ImageSpec::Fit::kCrop;
}

void NormalizeAsClip(ImageSpec* images) {
  images->mean = {0.48145466F, 0.4578275F, 0.40821073F};
  images->deviation = {0.26862954F, 0.26130258F, 0.27577711F};
}

// An encoder's tiles, with the normalization of CLIP or SigLIP.
ImageSpec EncoderImages(const ModelConfig& config) {
  ImageSpec images;
  images.tile_size = config.vision.image_size;
  images.rows_per_tile = config.vision.rows();
  images.tokens_per_tile = config.tokens_per_tile();
  images.mean = {0.5F, 0.5F, 0.5F};
  images.deviation = {0.5F, 0.5F, 0.5F};
  if (config.vision.class_token) NormalizeAsClip(&images);
  return images;
}

void ReadNormalization(const Json& json, ImageSpec* images) {
  images->mean = ThreeNumbers(json, "image_mean", images->mean);
  images->deviation = ThreeNumbers(json, "image_std", images->deviation);
  for (const float deviation : images->deviation) {
    if (!(deviation > 0)) Refuse("image_std", "must be above 0");
  }
}

}  // namespace

ImageSpec LlavaImages(const ModelConfig& config) {
  ImageSpec images = EncoderImages(config);
  images.kind = ImageSpec::Kind::kSquare;
  images.fit = config.vision.class_token ? ImageSpec::Fit::kPad : ImageSpec::Fit::kStretch;
  const Json& json = config.preprocessor;
  if (!json.is_object()) return images;
  RequireKnownSteps(json);
  images.fit = FitOf(json, images.fit);
  RequireSide(json, "size", images.tile_size);
  if (images.fit == ImageSpec::Fit::kCrop) RequireSide(json, "crop_size", images.tile_size);
  ReadNormalization(json, &images);
  return images;
}

ImageSpec LlavaNextImages(const ModelConfig& config) {
  ImageSpec images = EncoderImages(config);
  images.kind = ImageSpec::Kind::kAnyRes;
  for (const auto& [height, width] : config.image_grid_pinpoints) {
    images.resolutions.push_back({height / images.tile_size, width / images.tile_size});
  }
  const Json& json = config.preprocessor;
  if (!json.is_object()) return images;
  RequireKnownSteps(json);
  RequireSide(json, "size", images.tile_size);
  RequireSide(json, "crop_size", images.tile_size);
  constexpr char kPinpoints[] = "image_grid_pinpoints";
  if (json.contains(kPinpoints) && json[kPinpoints] != Json(config.image_grid_pinpoints)) {
    Refuse(kPinpoints, "not those of config.json; make them equal");
  }
  ReadNormalization(json, &images);
  return images;
}

ImageSpec LlavaOnevisionImages(const ModelConfig& config) {
  ImageSpec images = LlavaNextImages(config);
  images.max_tiles = config.anyres_max_tiles;
  images.lone_tiles = true;
  images.fit = ImageSpec::Fit::kPad;
  if (!config.preprocessor.is_object()) return images;
  NormalizeAsClip(&images);
  ReadNormalization(config.preprocessor, &images);
  return images;
}

}  // namespace equipoise
