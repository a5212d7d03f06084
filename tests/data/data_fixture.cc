#include "tests/data/data_fixture.h"

#include <png.h>

#include <stdexcept>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "tests/data/tiny_tokenizer.h"

namespace equipoise {

std::string TinyPng(int64_t width, int64_t height, uint8_t shade) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_GRAY;
  std::string pixels(static_cast<size_t>(width * height), '\0');
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(shade + i % 7);
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string png(bytes, '\0');
  if (png_image_write_to_memory(&image, png.data(), &bytes, 0, pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error("cannot write a PNG");
  }
  png.resize(bytes);
  return png;
}

std::string MessageOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

std::string RecordLine(const std::string& id, const std::string& images,
                       const std::string& question, const std::string& answer) {
  const std::string image = images.empty() ? "" : "\"image\":" + images + ",";
  return "{\"id\":\"" + id + "\"," + image +
         "\"conversations\":[{\"from\":\"human\",\"value\":" + Json(question).dump() +
         "},{\"from\":\"gpt\",\"value\":" + Json(answer).dump() + "}]}";
}

DataFixture::DataFixture()
    : tokenizer(ReadTokenizerJson(TinyTokenizerJson())), chat_template("chatml", "", &tokenizer) {
  config.train = {{folder / "train.jsonl", folder / "images", 1.0}};
  config.max_tokens = 128;
  config.tiles = {1, 4, true};
  folder.Write("images/one.png", TinyPng(14, 14));
  folder.Write("images/wide.png", TinyPng(56, 28, 50));
  folder.Write("images/tall.png", TinyPng(14, 28, 150));
}

void DataFixture::WriteRecords(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  folder.Write("train.jsonl", text);
}

std::vector<std::string> DataFixture::MixedLines(int count) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    const std::string id = "r" + std::to_string(i), words(static_cast<size_t>(i % 13), 'x');
    switch (i % 4) {
      case 0:
        lines.push_back(RecordLine(id, "", "Hello " + words, "Hi " + words));
        break;
      case 1:
        lines.push_back(RecordLine(id, "\"wide.png\"", "<image>\nWhat? " + words, "A " + words));
        break;
      case 2:
        lines.push_back(
            RecordLine(id, "[\"one.png\",\"tall.png\"]", "<image> or <image>?", words + "B"));
        break;
      default:
        lines.push_back(RecordLine(id, "\"one.png\"", "No mark", "C"));
    }
  }
  return lines;
}

ImageSpec DataFixture::images() {
  ImageSpec images;
  images.kind = ImageSpec::Kind::kTiles;
  images.tile_size = kTileSize;
  images.rows_per_tile = kRowsPerTile;
  images.tokens_per_tile = kTokensPerTile;
  images.mean = {0.485F, 0.456F, 0.406F};
  images.deviation = {0.229F, 0.224F, 0.225F};
  return images;
}

CostIndexOptions DataFixture::options() const {
  CostIndexOptions options;
  options.images = images();
  return options;
}

SampleOptions DataFixture::sample_options() const {
  return {config.max_tokens, config.tiles, config.limits, images()};
}

CostIndex DataFixture::Open(const CostIndexOptions& with) const {
  return OpenCostIndex(config.train, config, chat_template, with).index;
}

}  // namespace equipoise
