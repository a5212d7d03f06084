#include "models/families/preprocessor.h"

#include <filesystem>

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

}  // namespace equipoise
