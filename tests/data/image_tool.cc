// Runs the picture code on files for image_check.py. Commands come on standard input, one a line,
// words apart by tabs; each is answered by one line, "ok WIDTH HEIGHT" or "error MESSAGE".
//   size PATH              decode PATH OUT              resize PATH WIDTH HEIGHT OUT
//   tiles PATH MIN MAX THUMBNAIL TILE_SIZE OUT
//   square PATH SIDE FIT MEAN DEVIATION OUT        three words each for mean and deviation
//   anyres PATH SIDE ROWS COLUMNS ... OUT          rows and columns of tiles of each resolution
//   patches PATH MIN MAX OUT       of Qwen2-VL, with so many pixels
// OUT gets the raw bytes of the tensor.
#include <ATen/core/Tensor.h>

#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "data/images/image.h"
#include "data/images/image_processor.h"
#include "models/ops/pixels.h"

namespace equipoise {
namespace {

at::Tensor Decode(const std::string& path) {
  const ImageLimits limits;
  return DecodeImage(ReadImageFile(path, limits), limits);
}

void Write(const std::string& path, const at::Tensor& tensor) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(tensor.const_data_ptr()),
             static_cast<std::streamsize>(tensor.nbytes()));
}

ImageSize Run(const std::vector<std::string>& words) {
  const std::string& command = words.at(0);
  const std::string& path = words.at(1);
  if (command == "size") return ReadImageSize(path, ImageLimits());
  at::Tensor image = Decode(path);
  const ImageSize size{image.size(1), image.size(0)};
  if (command == "resize")
    image = ResizeBicubic(image, std::stol(words.at(2)), std::stol(words.at(3)));
  if (command == "tiles") {
    const TilesConfig config{std::stol(words.at(2)), std::stol(words.at(3)), words.at(4) == "1"};
    ImageSpec spec;  // of InternVL
    spec.kind = ImageSpec::Kind::kTiles;
    spec.tile_size = std::stol(words.at(5));
    spec.mean = {0.485F, 0.456F, 0.406F};
    spec.deviation = {0.229F, 0.224F, 0.225F};
    image = ops::PixelScale(spec, at::kCPU)(ImageProcessor(spec, config).Make(image, 1));
  }
  if (command == "square") {
    const std::map<std::string, ImageSpec::Fit> fits = {{"stretch", ImageSpec::Fit::kStretch},
                                                        {"pad", ImageSpec::Fit::kPad},
                                                        {"crop", ImageSpec::Fit::kCrop}};
    ImageSpec spec;
    spec.kind = ImageSpec::Kind::kSquare;
    spec.tile_size = std::stol(words.at(2));
    spec.fit = fits.at(words.at(3));
    for (size_t channel = 0; channel < 3; ++channel) {
      spec.mean[channel] = std::stof(words.at(4 + channel));
      spec.deviation[channel] = std::stof(words.at(7 + channel));
    }
    image = ops::PixelScale(spec, at::kCPU)(ImageProcessor(spec, {}).Make(image, 1));
  }
  if (command == "anyres") {
    ImageSpec spec;
    spec.kind = ImageSpec::Kind::kAnyRes;
    spec.tile_size = std::stol(words.at(2));
    for (size_t i = 3; i + 2 < words.size(); i += 2) {
      spec.resolutions.push_back({std::stol(words[i]), std::stol(words[i + 1])});
    }
    spec.mean = {0.48145466F, 0.4578275F, 0.40821073F};
    spec.deviation = {0.26862954F, 0.26130258F, 0.27577711F};
    image = ops::PixelScale(spec, at::kCPU)(ImageProcessor(spec, {}).Make(image, 1));
  }
  if (command == "patches") {
    ImageSpec spec;
    spec.kind = ImageSpec::Kind::kNative;
    spec.rows_per_tile = 4;
    spec.tokens_per_tile = 1;
    spec.patch_size = 14;
    spec.merge = spec.frames = 2;
    spec.min_pixels = std::stol(words.at(2));
    spec.max_pixels = std::stol(words.at(3));
    spec.mean = {0.48145466F, 0.4578275F, 0.40821073F};
    spec.deviation = {0.26862954F, 0.26130258F, 0.27577711F};
    image = ops::PixelScale(spec, at::kCPU)(ImageProcessor(spec, {}).Make(image, 1));
  }
  Write(words.back(), image);
  return size;
}

std::vector<std::string> Split(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, '\t');) words.push_back(word);
  return words;
}

}  // namespace
}  // namespace equipoise

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const equipoise::ImageSize size = equipoise::Run(equipoise::Split(line));
      std::cout << "ok " << size.width << ' ' << size.height << std::endl;
    } catch (const equipoise::ImageError& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
  return 0;
}
