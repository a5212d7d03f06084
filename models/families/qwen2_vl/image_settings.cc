#include "models/families/qwen2_vl/image_settings.h"

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
// Fewer pixels than a square of the largest patches has, more than any picture.
constexpr int64_t kMostPixels = int64_t{1} << 32;

[[noreturn]] void Refuse(const char* key, const std::string& what) {
  throw DataError(fmt::format("{}: {}: {}", kFile, key, what));
}

void ReadThree(const Json& json, const char* key, std::array<float, 3>& numbers) {
  if (!json.contains(key) || json[key].is_null()) return;
  const Json& list = json[key];
  if (!list.is_array() || list.size() != numbers.size()) Refuse(key, "not a list of three numbers");
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!list[i].is_number()) Refuse(key, "not a list of three numbers");
    numbers[i] = list[i].get<float>();
  }
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

void RequireEqual(const Json& json, const char* key, int64_t own, const char* of_encoder) {
  const int64_t value = GetInt(json, key, kFile, own);
  if (value == own) return;
  Refuse(key, fmt::format("{} is not the encoder's {}, {}", value, of_encoder, own));
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
  if (config.model_type == "qwen3_vl" && !config.preprocessor.is_object()) {
    // Of published folders: the class of their processor has the defaults above.
    images.min_pixels = 256 * 256;
    images.max_pixels = 4096 * 4096;
    images.mean = images.deviation = {0.5F, 0.5F, 0.5F};
  }
  if (config.preprocessor.is_object()) {
    const Json& json = config.preprocessor;
    RequireKnownSteps(json);
    RequireEqual(json, "patch_size", vision.patch_size, "patch_size");
    RequireEqual(json, "merge_size", images.merge, "spatial_merge_size");
    RequireEqual(json, "temporal_patch_size", images.frames, "temporal_patch_size");
    ReadPixels(json, images);
    ReadThree(json, "image_mean", images.mean);
    ReadThree(json, "image_std", images.deviation);
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
  return images;
}

}  // namespace equipoise
