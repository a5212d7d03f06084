#include "models/families/llava/image_settings.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/processor_steps.h"

namespace equipoise {
namespace {

constexpr char kFile[] = "image processor", kVideoFile[] = "video processor";

[[noreturn]] void Refuse(const char* key, const std::string& what, const char* file = kFile) {
  throw DataError(fmt::format("{}: {}: {}", file, key, what));
}

bool IsStretched(const Json& json) {
  return json.contains("size") && json["size"].is_object() && json["size"].contains("height");
}

// Of Transformers' processors LLaVA's alone pad; CLIP's and SigLIP's take no notice of the key.
bool IsPadded(const Json& json) {
  if (!GetBool(json, "do_pad", kFile, false)) return false;
  const std::string type = GetString(json, "image_processor_type", kFile, "");
  return type.empty() ? !json.contains("feature_extractor_type") : type.starts_with("Llava");
}

ImageSpec::Fit FitOf(const Json& json, ImageSpec::Fit own) {
  if (IsPadded(json)) return ImageSpec::Fit::kPad;
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

// Sets that videos are taken as such; `images` is complete but for that. A frame is stretched to a
// tile, so that its pixels have no other limits. Absent keys have the defaults of Transformers'
// LlavaOnevisionVideoProcessor.
void ReadVideos(const ModelConfig& config, ImageSpec* images) {
  const int64_t side = images->tile_size;
  images->videos.min_pixels = images->videos.max_pixels = side * side;
  if (!config.video_preprocessor.is_object()) return;
  Json json = config.video_preprocessor;
  RequireKnownSteps(json, kVideoFile);
  if (!json.contains("size") || json["size"].is_null())
    json["size"] = {{"height", 384}, {"width", 384}};
  if (!json["size"].is_object() || !json["size"].contains("height") ||
      !json["size"].contains("width")) {
    Refuse("size",
           fmt::format("{} leaves frames as wide as they are; set a height and a width",
                       json["size"].dump()),
           kVideoFile);
  }
  RequireSide(json, "size", side, kVideoFile);
  if (GetBool(json, "do_center_crop", kVideoFile, false)) {
    RequireSide(json, "crop_size", side, kVideoFile);
  }
  ImageSpec own = *images;
  NormalizeAsClip(&own);
  ReadNormalization(json, kVideoFile, &own);
  if (own.mean != images->mean || own.deviation != images->deviation) {
    Refuse("image_mean, image_std", "are not those of the image processor; make them equal",
           kVideoFile);
  }
}

}  // namespace

ImageSpec LlavaImages(const ModelConfig& config) {
  ImageSpec images = EncoderImages(config);
  images.kind = ImageSpec::Kind::kSquare;
  images.fit = config.vision.class_token ? ImageSpec::Fit::kPad : ImageSpec::Fit::kStretch;
  const Json& json = config.preprocessor;
  if (!json.is_object()) return images;
  RequireKnownSteps(json, kFile, &images.bilinear);
  images.fit = FitOf(json, images.fit);
  RequireSide(json, "size", images.tile_size, kFile);
  if (images.fit == ImageSpec::Fit::kCrop) RequireSide(json, "crop_size", images.tile_size, kFile);
  ReadNormalization(json, kFile, &images);
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
  RequireKnownSteps(json, kFile);
  RequireSide(json, "size", images.tile_size, kFile);
  RequireSide(json, "crop_size", images.tile_size, kFile);
  constexpr char kPinpoints[] = "image_grid_pinpoints";
  if (json.contains(kPinpoints) && json[kPinpoints] != Json(config.image_grid_pinpoints)) {
    Refuse(kPinpoints, "not those of config.json; make them equal");
  }
  ReadNormalization(json, kFile, &images);
  return images;
}

ImageSpec LlavaOnevisionImages(const ModelConfig& config) {
  ImageSpec images = LlavaNextImages(config);
  images.max_tiles = config.anyres_max_tiles;
  images.lone_tiles = true;
  images.fit = ImageSpec::Fit::kPad;
  if (config.preprocessor.is_object()) {
    NormalizeAsClip(&images);
    ReadNormalization(config.preprocessor, kFile, &images);
  }
  ReadVideos(config, &images);
  return images;
}

}  // namespace equipoise
