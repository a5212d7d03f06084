#include "models/families/qwen2_vl/image_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/processor_steps.h"

namespace equipoise {
namespace {

constexpr char kFile[] = "image processor", kVideoFile[] = "video processor";
// Fewer pixels than a square of the largest patches has, more than any picture.
constexpr int64_t kMostPixels = int64_t{1} << 32;

[[noreturn]] void Refuse(const char* key, const std::string& what, const char* file = kFile) {
  throw DataError(fmt::format("{}: {}: {}", file, key, what));
}

void ReadThree(const Json& json, const char* key, const char* file, std::array<float, 3>& numbers) {
  if (!json.contains(key) || json[key].is_null()) return;
  const Json& list = json[key];
  const bool three = list.is_array() && list.size() == numbers.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!three || !list[i].is_number()) Refuse(key, "not a list of three numbers", file);
    numbers[i] = list[i].get<float>();
  }
}

// What pictures and videos have in common: steps, and the shape of patches, which is the encoder's.
void RequireKnown(const Json& json, const char* file, const ImageSpec& images) {
  RequireKnownSteps(json, file);
  const auto require = [&](const char* key, int64_t own, const char* of_encoder) {
    const int64_t value = GetInt(json, key, file, own);
    if (value == own) return;
    Refuse(key, fmt::format("{} is not the encoder's {}, {}", value, of_encoder, own), file);
  };
  require("patch_size", images.patch_size, "patch_size");
  require("merge_size", images.merge, "spatial_merge_size");
  require("temporal_patch_size", images.frames, "temporal_patch_size");
}

// min_pixels and max_pixels, of which `size` has the newer names; the older ones count.
void ReadPixels(const Json& json, ImageSpec& images) {
  if (json.contains("size") && json["size"].is_object()) {
    images.min_pixels = GetInt(json["size"], "shortest_edge", kFile, images.min_pixels);
    images.max_pixels = GetInt(json["size"], "longest_edge", kFile, images.max_pixels);
  }
  const auto given = [&](const char* key) { return json.contains(key) && !json[key].is_null(); };
  if (given("min_pixels")) images.min_pixels = GetInt(json, "min_pixels", kFile);
  if (given("max_pixels")) images.max_pixels = GetInt(json, "max_pixels", kFile);
}

// How the published models of a generation write boxes: the second in pixels, others in
// thousandths.
ImageSpec::Grounding GroundingOf(const std::string& model_type) {
  if (model_type == "qwen2_vl") return ImageSpec::Grounding::kQwen2Vl;
  return model_type == "qwen2_5_vl" ? ImageSpec::Grounding::kPixelList
                                    : ImageSpec::Grounding::kList;
}

// Sets how videos are taken; `images` is complete but for that.
void ReadVideos(const ModelConfig& config, ImageSpec& images) {
  const bool third = config.model_type == "qwen3_vl";
  const int64_t token = images.patch_size * images.merge;  // pixels of a token's side
  ImageSpec::Videos& videos = images.videos;
  videos.of_all_frames = videos.timestamps = third;
  videos.positions_per_second = static_cast<double>(config.vision.tokens_per_second);
  // Of the processors' classes, whose side of a token is that of their published models.
  const int64_t side = third ? 32 : 28;
  videos.min_pixels = 128 * side * side;
  videos.max_pixels = 768 * side * side;
  if (config.video_preprocessor.is_object()) {
    const Json& json = config.video_preprocessor;
    RequireKnown(json, kVideoFile, images);
    std::array<float, 3> mean = images.mean, deviation = images.deviation;
    ReadThree(json, "image_mean", kVideoFile, mean);
    ReadThree(json, "image_std", kVideoFile, deviation);
    if (mean != images.mean || deviation != images.deviation) {
      Refuse("image_mean, image_std", "are not those of the image processor; make them equal",
             kVideoFile);
    }
    if (GetBool(json, "cap_pixels_per_frame", kVideoFile, false)) {
      videos.capped_tokens = GetInt(json, "max_video_tokens", kVideoFile, third ? 768 : 128'000);
      if (videos.capped_tokens < 1 || videos.capped_tokens > kMostPixels)
        Refuse("max_video_tokens", fmt::format("must be between 1 and {}", kMostPixels),
               kVideoFile);
    }
    if (json.contains("size") && json["size"].is_object()) {
      const Json& size = json["size"];
      videos.min_pixels = GetInt(size, "shortest_edge", kVideoFile, videos.min_pixels);
      videos.max_pixels = GetInt(size, "longest_edge", kVideoFile, videos.max_pixels);
    }
    // The third's processor knows no other names.
    for (const auto& [key, value] : {std::pair{"min_pixels", &videos.min_pixels},
                                     std::pair{"max_pixels", &videos.max_pixels}}) {
      if (!third && json.contains(key) && !json[key].is_null()) {
        *value = GetInt(json, key, kVideoFile);
      }
    }
  }
  if (config.min_video_pixels > 0) videos.min_pixels = config.min_video_pixels;
  if (config.max_video_pixels > 0) videos.max_pixels = config.max_video_pixels;
  const int64_t least = std::max(videos.min_pixels, token * token);
  if (videos.min_pixels < 1 || videos.max_pixels > kMostPixels || videos.max_pixels < least) {
    Refuse("size",
           fmt::format("{} to {} pixels: must begin above 0 and end between {} and {}",
                       videos.min_pixels, videos.max_pixels, least, kMostPixels),
           kVideoFile);
  }
}

}  // namespace

ImageSpec Qwen2VlImages(const ModelConfig& config) {
  const VisionConfig& vision = config.vision;
  ImageSpec images;
  images.kind = ImageSpec::Kind::kNative;
  images.patch_size = vision.patch_size;
  images.merge = config.shuffle();
  images.frames = vision.temporal_patch_size;
  images.rows_per_tile = images.merge * images.merge;
  images.tokens_per_tile = 1;
  const int64_t token = vision.patch_size * images.merge;  // pixels of a token's side
  if (vision.window_size > 0) images.window = vision.window_size / token * images.merge;
  images.min_pixels = 56 * 56;
  images.max_pixels = 28 * 28 * 1280;
  images.mean = {0.48145466F, 0.4578275F, 0.40821073F};
  images.deviation = {0.26862954F, 0.26130258F, 0.27577711F};
  images.grounding = GroundingOf(config.model_type);
  if (config.model_type == "qwen3_vl" && !config.preprocessor.is_object()) {
    // Of published folders: the class of their processor has the defaults above.
    images.min_pixels = 256 * 256;
    images.max_pixels = 4096 * 4096;
    images.mean = images.deviation = {0.5F, 0.5F, 0.5F};
  }
  if (config.preprocessor.is_object()) {
    const Json& json = config.preprocessor;
    RequireKnown(json, kFile, images);
    ReadPixels(json, images);
    ReadThree(json, "image_mean", kFile, images.mean);
    ReadThree(json, "image_std", kFile, images.deviation);
  }
  for (const float deviation : images.deviation) {
    if (!(deviation > 0)) Refuse("image_std", "must be above 0");
  }
  if (config.min_pixels > 0) images.min_pixels = config.min_pixels;
  if (config.max_pixels > 0) images.max_pixels = config.max_pixels;
  if (images.min_pixels < 1 || images.max_pixels > kMostPixels) {
    Refuse("min_pixels", fmt::format("must be above 0, and max_pixels at most {}", kMostPixels));
  }
  if (images.max_pixels < std::max(images.min_pixels, token * token)) {
    Refuse("max_pixels", fmt::format("{} is below min_pixels {} or the {} of a token",
                                     images.max_pixels, images.min_pixels, token * token));
  }
  ReadVideos(config, images);
  return images;
}

}  // namespace equipoise
