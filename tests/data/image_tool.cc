// Runs the picture code on files for image_check.py. Commands come on standard input, one a line,
// words apart by tabs; each is answered by one line, "ok WIDTH HEIGHT" or "error MESSAGE".
//   size PATH              decode PATH OUT              resize PATH WIDTH HEIGHT OUT
//   tiles PATH MIN MAX THUMBNAIL TILE_SIZE OUT
//   square PATH SIDE FIT MEAN DEVIATION OUT        three words each for mean and deviation
//   anyres PATH SIDE ROWS COLUMNS ... OUT          rows and columns of tiles of each resolution
//   patches PATH MIN MAX OUT       of Qwen2-VL, with so many pixels
//   cpu                            answered by the CPU time since the start: "ok MICROSECONDS"
// OUT gets the raw bytes of the tensor.
#include <ATen/core/Tensor.h>

#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
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

// What a model makes of pictures; made once, as in a run.
struct Processor {
  ImageProcessor pictures;
  ops::PixelScale scale;
};

Processor MakeProcessor(const std::vector<std::string>& words) {
  const std::string& command = words.at(0);
  ImageSpec spec;
  spec.mean = {0.48145466F, 0.4578275F, 0.40821073F};
  spec.deviation = {0.26862954F, 0.26130258F, 0.27577711F};
  TilesConfig tiles;
  if (command == "tiles") {  // of InternVL
    tiles = {std::stol(words.at(2)), std::stol(words.at(3)), words.at(4) == "1"};
    spec.kind = ImageSpec::Kind::kTiles;
    spec.tile_size = std::stol(words.at(5));
    spec.mean = {0.485F, 0.456F, 0.406F};
    spec.deviation = {0.229F, 0.224F, 0.225F};
  } else if (command == "square") {
    const std::map<std::string, ImageSpec::Fit> fits = {
        {"stretch", ImageSpec::Fit::kStretch},  {"pad", ImageSpec::Fit::kPad},
        {"crop", ImageSpec::Fit::kCrop},        {"bilinear", ImageSpec::Fit::kStretch},
        {"bilinear_pad", ImageSpec::Fit::kPad}, {"bilinear_crop", ImageSpec::Fit::kCrop}};
    spec.kind = ImageSpec::Kind::kSquare;
    spec.tile_size = std::stol(words.at(2));
    spec.fit = fits.at(words.at(3));
    spec.bilinear = words.at(3).starts_with("bilinear");
    for (size_t channel = 0; channel < 3; ++channel) {
      spec.mean[channel] = std::stof(words.at(4 + channel));
      spec.deviation[channel] = std::stof(words.at(7 + channel));
    }
  } else if (command == "anyres") {
    spec.kind = ImageSpec::Kind::kAnyRes;
    spec.tile_size = std::stol(words.at(2));
    for (size_t i = 3; i + 2 < words.size(); i += 2) {
      spec.resolutions.push_back({std::stol(words[i]), std::stol(words[i + 1])});
    }
  } else if (command == "patches") {
    spec.kind = ImageSpec::Kind::kNative;
    spec.rows_per_tile = 4;
    spec.tokens_per_tile = 1;
    spec.patch_size = 14;
    spec.merge = spec.frames = 2;
    spec.min_pixels = std::stol(words.at(2));
    spec.max_pixels = std::stol(words.at(3));
  } else {
    throw std::invalid_argument("no command " + command);
  }
  return {ImageProcessor(spec, tiles), ops::PixelScale(spec, at::kCPU)};
}

using Processors = std::map<std::vector<std::string>, Processor>;

ImageSize Run(const std::vector<std::string>& words, Processors* processors) {
  const std::string& command = words.at(0);
  const std::string& path = words.at(1);
  if (command == "size") return ReadImageSize(path, ImageLimits());
  at::Tensor image = Decode(path);
  const ImageSize size{image.size(1), image.size(0)};
  if (command == "resize") {
    image = ResizeBicubic(image, std::stol(words.at(2)), std::stol(words.at(3)));
  } else if (command != "decode") {
    std::vector<std::string> settings = words;
    settings.at(1) = settings.back() = "";
    auto found = processors->find(settings);
    if (found == processors->end())
      found = processors->emplace(settings, MakeProcessor(words)).first;
    image = found->second.scale(found->second.pictures.Make(image, 1));
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
  equipoise::Processors processors;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "cpu") {
      std::cout << "ok " << std::clock() << std::endl;
      continue;
    }
    try {
      const equipoise::ImageSize size = equipoise::Run(equipoise::Split(line), &processors);
      std::cout << "ok " << size.width << ' ' << size.height << std::endl;
    } catch (const equipoise::ImageError& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
  return 0;
}
