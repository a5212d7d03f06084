#include "trainer/run/same_model.h"

#include <filesystem>
#include <string>

#include "configs/base/json.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/checkpoint/first_folders.h"
#include "trainer/common/agreement.h"
#include "trainer/run/set_up_run.h"

namespace equipoise {
namespace {

// What config.json says of the model, not of who wrote it.
Json DescriptionOf(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (folder.empty() || !std::filesystem::exists(path)) return nullptr;
  Json description = ReadJsonFile(path);
  if (!description.is_object()) return description;
  for (const char* key : {"_name_or_path", "transformers_version"}) description.erase(key);
  return description;
}

}  // namespace

void RequireSameModel(Communicator& world, const RunConfig& config, bool weights) {
  if (world.size() == 1) return;
  Json mine;
  AgreeOrThrowDataError(world, [&] {
    for (const std::string& folder : FoldersRead(config.model))
      mine["config.json"].push_back(DescriptionOf(folder));
    if (weights)
      mine["weights"] = BaseIdentity(config.model, static_cast<uint64_t>(config.train.seed));
  });
  RequireEqual(world, "the model", mine);
}

}  // namespace equipoise
