#include "models/families/preprocessor.h"

#include <filesystem>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Null where there is no such file.
Json ReadObject(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  Json json = ReadJsonFile(path);
  if (!json.is_object()) throw DataError(path + ": not an object");
  return json;
}

}  // namespace

Json ReadPreprocessor(const std::string& folder) {
  const Json whole = ReadObject(folder + "/processor_config.json");
  if (whole.contains("image_processor")) return whole["image_processor"];
  const Json own = ReadObject(folder + "/preprocessor_config.json");
  if (own.contains("image_processor")) return own["image_processor"];
  if (own.is_object()) return own;
  // Of version 4 it has nothing of pictures.
  const bool pictures = whole.contains("image_processor_type") || whole.contains("image_mean");
  return pictures ? whole : Json();
}

Json ReadVideoPreprocessor(const std::string& folder) {
  const Json whole = ReadObject(folder + "/processor_config.json");
  if (whole.contains("video_processor")) return whole["video_processor"];
  for (const char* name : {"/video_preprocessor_config.json", "/preprocessor_config.json"}) {
    Json json = ReadObject(folder + name);
    if (json.is_object()) return json;
  }
  return {};
}

void TakePreprocessors(const std::string& folder, ModelConfig* config) {
  if (Json json = ReadPreprocessor(folder); json.is_object())
    config->preprocessor = std::move(json);
  if (Json json = ReadVideoPreprocessor(folder); json.is_object())
    config->video_preprocessor = std::move(json);
}

void PadPictures(ModelConfig* config) {
  if (!config->preprocessor.is_object()) config->preprocessor = Json::object();
  config->preprocessor["do_pad"] = true;
  config->preprocessor["image_processor_type"] = "LlavaImageProcessor";  // Transformers' that pads
}

}  // namespace equipoise
