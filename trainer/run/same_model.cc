#include "trainer/run/same_model.h"

#include <array>
#include <filesystem>
#include <string>

#include "configs/base/json.h"
#include "models/weights/peft_config.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/checkpoint/first_folders.h"
#include "trainer/common/agreement.h"
#include "trainer/common/durable_file.h"
#include "trainer/run/set_up_run.h"

namespace equipoise {
namespace {

// What a file of a folder says of the model, not of who wrote it.
Json DescriptionOf(const std::string& folder, const std::string& file) {
  const std::string path = folder + "/" + file;
  if (folder.empty() || !std::filesystem::exists(path)) return nullptr;
  Json description = ReadJsonFile(path);
  if (!description.is_object()) return description;
  for (const char* key : {"_name_or_path", "transformers_version"}) description.erase(key);
  return description;
}

// What a model is, how its pictures become pixels, and what ends its answers.
constexpr std::array<const char*, 5> kDescriptions = {
    "config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "video_preprocessor_config.json"};

}  // namespace

void RequireSameModel(Communicator& world, const RunConfig& config, bool weights) {
  if (world.size() == 1) return;
  Json mine;
  AgreeOrThrowDataError(world, [&] {
    for (const std::string& folder : FoldersRead(config.model)) {
      for (const char* file : kDescriptions) mine[file].push_back(DescriptionOf(folder, file));
    }
    if (const std::string& adapters = config.model.adapter.init; weights && !adapters.empty()) {
      mine["adapter"] = ReadJsonFile(PeftConfigFile(adapters));
      if (mine["adapter"].is_object()) mine["adapter"].erase("base_model_name_or_path");
      mine["adapter's weights"] = HexDigits(SumFile(PeftTensorFile(adapters)).xxh3);
    }
    if (weights)
      mine["weights"] = BaseIdentity(config.model, static_cast<uint64_t>(config.train.seed));
  });
  RequireEqual(world, "the model", mine);
}

void RequireSameCheckpoint(Communicator& world, const std::string& folder) {
  std::string sum;
  AgreeOrThrowDataError(world, [&] { sum = HexDigits(SumFile(folder + "/index.json").xxh3); });
  RequireEqual(world, "the checkpoint", {{"folder", folder}, {"index.json", sum}});
}

}  // namespace equipoise
