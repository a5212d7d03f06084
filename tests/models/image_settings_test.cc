// What a folder's files say of pictures.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/presets.h"

namespace equipoise {
namespace {

TEST_CASE("LLaVA's pictures are those of the folder's image processor", "[models][cpu]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("llava_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << ToHuggingFace(PresetConfig("llava1_5-7b")).dump();
  const auto images = [&](const char* file, const std::string& settings) {
    std::ofstream(folder / file) << settings;
    const ImageSpec spec = ImageSpecOf(ReadModelConfig(folder.string()));
    std::filesystem::remove(folder / file);
    return spec;
  };
  const ImageSpec own = ImageSpecOf(ReadModelConfig(folder.string()));
  CHECK(own.fit == ImageSpec::Fit::kPad);
  CHECK(own.tokens_per_tile == 576);
  struct Row {
    std::string settings;
    ImageSpec::Fit fit;
    float mean;
  };
  constexpr char kFile[] = "preprocessor_config.json";
  for (const Row& row : {
           Row{R"({"image_mean": [0.1, 0.2, 0.3]})", ImageSpec::Fit::kPad, 0.1F},
           Row{R"({"image_mean": null, "image_processor_type": "a", "do_center_crop": true,
                "crop_size": {"height": 336, "width": 336}, "size": {"shortest_edge": 336}})",
               ImageSpec::Fit::kCrop, 0.48145466F},
           Row{R"({"image_mean": [0, 0, 0], "crop_size": 336, "size": 336})", ImageSpec::Fit::kCrop,
               0.0F},
           Row{R"({"image_mean": [0, 0, 0], "do_pad": true, "size": {"shortest_edge": 336},
                "do_center_crop": true})",
               ImageSpec::Fit::kPad, 0.0F},
           Row{R"({"image_mean": [0.5, 0.5, 0.5], "size": {"height": 336, "width": 336}})",
               ImageSpec::Fit::kStretch, 0.5F},
           // LLaVA's processor alone pads.
           Row{R"({"image_processor_type": "CLIPImageProcessor", "do_pad": true, "size": 336,
                "do_center_crop": true})",
               ImageSpec::Fit::kCrop, 0.48145466F},
           Row{R"({"feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0, 0, 0],
                "do_pad": true, "size": 336})",
               ImageSpec::Fit::kCrop, 0.0F},
           Row{R"({"image_processor_type": "LlavaImageProcessorFast", "do_pad": true, "size": 336,
                "do_center_crop": true})",
               ImageSpec::Fit::kPad, 0.48145466F},
       }) {
    INFO(row.settings);
    for (const bool section : {false, true}) {  // Transformers 4, and 5
      const ImageSpec spec =
          section ? images("processor_config.json", "{\"image_processor\": " + row.settings + "}")
                  : images(kFile, row.settings);
      CHECK(spec.fit == row.fit);
      CHECK(spec.mean[0] == row.mean);
      CHECK(spec.tile_size == 336);
      CHECK_FALSE(spec.bilinear);
    }
  }
  CHECK(images(kFile, R"({"image_mean": [0, 0, 0], "resample": 2})").bilinear);
  CHECK(images(kFile, R"({"size": {"height": 336, "width": 336}})").fit ==
        ImageSpec::Fit::kStretch);  // whatever keys it has
  // Where both files are there, Transformers takes the section.
  std::ofstream(folder / kFile) << R"({"image_mean": [0.1, 0, 0]})";
  CHECK(images("processor_config.json", R"({"image_processor": {"image_mean": [0.2, 0, 0]}})")
            .mean[0] == 0.2F);
  CHECK(images("processor_config.json", R"({"image_mean": [0.2, 0, 0]})").mean[0] == 0.1F);
  for (const auto& [settings, what] : std::vector<std::pair<std::string, std::string>>{
           {R"("do_resize": false)", "do_resize: false is not supported"},
           {R"("resample": 1)", "resample: only 2, bilinear, and 3, bicubic, are supported"},
           {R"("rescale_factor": 1)", "rescale_factor: only 1/255"},
           {R"("do_center_crop": false)", "do_center_crop: false leaves no square"},
           {R"("size": {"shortest_edge": 384})",
            "size: {\"shortest_edge\":384} is not the encoder's"},
           {R"("crop_size": 28, "do_center_crop": true)", "crop_size: 28 is not the encoder's"},
           {R"("image_std": [1, 0, 1])", "image_std: must be above 0"},
           {R"("image_std": [1, 1])", "image_std: not a list of three numbers"},
       }) {
    INFO(settings);
    CHECK_THROWS_WITH(images(kFile, "{\"image_processor_type\": \"a\", " + settings + "}"),
                      Catch::Matchers::StartsWith(folder.string() + ": image processor: ") &&
                          Catch::Matchers::Contains(what));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("InternVL's tiles are those of the section where both files are there", "[models][cpu]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("internvl_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const ModelConfig config = PresetConfig("internvl3-1b");
  const auto most = [&](const char* file, const std::string& settings) {
    std::ofstream(folder / file) << settings;
    return FolderSettingsOf(config, folder.string()).max_tiles;
  };
  CHECK(most("processor_config.json", R"({"max_patches": 3})") == 3);
  CHECK(most("preprocessor_config.json", R"({"max_patches": 4})") == 4);
  CHECK(most("processor_config.json", R"({"image_processor": {"max_patches": 5}})") == 5);
  std::filesystem::remove_all(folder);
}

TEST_CASE("InternVL's pixels are those of the folder's image processor", "[models][cpu]") {
  ModelConfig config = PresetConfig("internvl3-1b");
  const auto images = [&](const char* settings) {
    config.preprocessor = Json::parse(settings);
    return ImageSpecOf(config);
  };
  CHECK(images("null").mean[0] == 0.485F);
  CHECK(images(R"({"size": {"height": 448, "width": 448}, "image_mean": [0.5, 0.4, 0.3],
      "image_std": [0.2, 0.2, 0.1]})")
            .mean[1] == 0.4F);
  CHECK(images(R"({"image_std": [0.2, 0.2, 0.1]})").deviation[2] == 0.1F);
  for (const auto& [settings, what] : std::vector<std::pair<const char*, const char*>>{
           {R"({"size": {"height": 384, "width": 384}})", "is not the encoder's image_size, 448"},
           {R"({"do_normalize": false})", "do_normalize: false is not supported"},
           {R"({"resample": 2})", "resample: only 3"}}) {
    CHECK_THROWS_WITH(images(settings), Catch::Matchers::Contains(what));
  }
  config.naming = WeightNaming::kOriginal;  // whose code reads no such file
  CHECK(images(R"({"size": 384, "image_mean": [0.5, 0.4, 0.3]})").mean[0] == 0.485F);
}

TEST_CASE("LLaVA-NeXT's pictures have the resolutions of its two files", "[models][cpu]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("llava_next_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << ToHuggingFace(PresetConfig("llava1_6-7b")).dump();
  const auto images = [&](const std::string& settings) {
    std::ofstream(folder / "preprocessor_config.json") << settings;
    return ImageSpecOf(ReadModelConfig(folder.string()));
  };
  const ImageSpec spec = images(R"({"image_mean": [0.5, 0.2, 0.3], "do_pad": true,
      "size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336},
      "do_center_crop": true, "image_grid_pinpoints":
      [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]})");
  CHECK(spec.kind == ImageSpec::Kind::kAnyRes);
  CHECK(spec.resolutions == std::vector<PatchGrid>{{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}});
  CHECK(spec.mean[0] == 0.5F);
  for (const auto& [settings, what] : std::vector<std::pair<std::string, std::string>>{
           {R"({"image_mean": [0, 0, 0], "image_grid_pinpoints": [[336, 672]]})",
            "image_grid_pinpoints: not those of config.json"},
           {R"({"image_mean": [0, 0, 0], "size": 224})", "size: 224 is not"},
           {R"({"image_mean": [0, 0, 0], "crop_size": 224})", "crop_size: 224 is not"},
           {R"({"image_mean": [0, 0, 0], "resample": 2})", "resample: only 3"}}) {
    CHECK_THROWS_WITH(images(settings), Catch::Matchers::Contains(what));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("LLaVA-OneVision's mean is CLIP's where its processor has none", "[models][cpu]") {
  ModelConfig config = PresetConfig("llava_onevision-0.5b");
  CHECK(ImageSpecOf(config).mean[0] == 0.5F);
  config.preprocessor = {{"size", {{"height", 384}, {"width", 384}}}, {"do_pad", true}};
  CHECK(ImageSpecOf(config).mean[0] == 0.48145466F);
  config.preprocessor["image_mean"] = {0.5, 0.25, 0.5};
  CHECK(ImageSpecOf(config).mean[1] == 0.25F);
  config.preprocessor["image_grid_pinpoints"] = {{384, 384}};
  CHECK_THROWS_WITH(ImageSpecOf(config),
                    Catch::Matchers::Contains("image_grid_pinpoints: not those of config.json"));
}

TEST_CASE("LLaVA-OneVision's video processor makes what its encoder takes", "[models][cpu]") {
  const Json size = {{"height", 384}, {"width", 384}}, half = {0.5, 0.5, 0.5};
  ModelConfig config = PresetConfig("llava_onevision-0.5b");
  config.preprocessor = {{"size", size}, {"image_mean", half}, {"image_std", half}};
  const Json sound = {{"image_mean", half}, {"image_std", half}};  // 384 pixels without a size
  config.video_preprocessor = sound;
  CHECK(ImageSpecOf(config).takes_videos());
  struct Row {
    const char* key;
    Json value;
    std::string what;
  };
  for (const Row& row : std::vector<Row>{
           {"size", {{"shortest_edge", 384}}, "set a height and a width"},
           {"size", 384, "set a height and a width"},
           {"size", {{"height", 384}, {"width", 378}}, "is not the encoder's image_size, 384"},
           {"crop_size", {{"height", 336}, {"width", 336}}, "is not the encoder's image_size"},
           {"resample", 2, "only 3, bicubic"},
           {"do_normalize", false, "false is not supported"},
           {"rescale_factor", 1, "only 1/255 is supported"},
           {"image_mean", {0.5, 0.5}, "not a list of three numbers"},
           {"image_std", {0.5, 0.5, 0}, "must be above 0"},
           {"image_mean", {0.5, 0.5, 0.4}, "not those of the image processor; make them equal"},
           {"image_std", nullptr, "not those of the image processor"}}) {  // CLIP's
    INFO(row.key << " " << row.value);
    config.video_preprocessor = sound;
    config.video_preprocessor["do_center_crop"] = std::string(row.key) == "crop_size";
    config.video_preprocessor[row.key] = row.value;
    CHECK_THROWS_WITH(ImageSpecOf(config), Catch::Matchers::StartsWith("video processor: ") &&
                                               Catch::Matchers::Contains(row.what));
  }
}

}  // namespace
}  // namespace equipoise
