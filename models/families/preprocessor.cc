#include "models/families/preprocessor.h"

#include <filesystem>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {

Json ReadPreprocessor(const std::string& folder) {
  for (const char* name : {"/preprocessor_config.json", "/processor_config.json"}) {
    const std::string path = folder + name;
    if (!std::filesystem::exists(path)) continue;
    const Json json = ReadJsonFile(path);
    if (!json.is_object()) throw DataError(path + ": not an object");
    if (json.contains("image_processor")) return json["image_processor"];
    if (json.contains("image_processor_type") || json.contains("image_mean")) return json;
  }
  return {};
}

Json ReadVideoPreprocessor(const std::string& folder) {
  const auto read = [&](const char* name) -> Json {
    const std::string path = folder + name;
    if (!std::filesystem::exists(path)) return {};
    Json json = ReadJsonFile(path);
    if (!json.is_object()) throw DataError(path + ": not an object");
    return json;
  };
  const Json whole = read("/processor_config.json");
  if (whole.contains("video_processor")) return whole["video_processor"];
  for (const char* name : {"/video_preprocessor_config.json", "/preprocessor_config.json"}) {
    Json json = read(name);
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
