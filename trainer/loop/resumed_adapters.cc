#include "trainer/loop/resumed_adapters.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "configs/yaml/config_json.h"
#include "configs/yaml/yaml_writer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_adapters.h"
#include "trainer/common/agreement.h"
#include "trainer/settings/model_section.h"

namespace equipoise {
namespace fs = std::filesystem;

namespace {

// Folders of checkpoints, any of which tells the layers of a run.
std::vector<std::string> Candidates(const std::string& path) {
  std::vector<std::string> folders = {path};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path + "/checkpoints", error))
    folders.push_back(entry.path().string());
  return folders;
}

// Whether a checkpoint's run gave the same names.
bool IsOfTheseNames(const CheckpointIndex& index, const ModelSection& section) {
  const Json now = ConfigToJson(section.adapter);
  const Json saved = index.sections.value(Json::json_pointer("/model/adapter"), Json::object());
  for (const char* key : {"targets", "train"}) {
    if (!saved.contains(key) || saved[key] != now[key]) return false;
  }
  return true;
}

// Changes the section by the first checkpoint that can be read.
bool Take(const std::string& path, ModelSection* section) {
  for (const std::string& folder : Candidates(path)) {
    try {
      const CheckpointIndex index = ReadCheckpointIndex(folder, /*verify=*/false);
      if (!IsOfTheseNames(index, *section)) return false;
      ModelSection plain = *section;
      plain.adapter = {};
      plain.base = "none";
      return TakeAdaptersOf(index, ModelConfigOf(plain), section);
    } catch (const UserError&) {
      continue;
    }
  }
  return false;
}

}  // namespace

void TakeAdaptersOfStart(RunContext& context, const TrainOptions& options) {
  ModelSection& section = context.config.model;
  if (options.resume == Resume::kNone || EqualConfig(section.adapter, AdapterSection())) return;
  const std::string path =
      options.resume == Resume::kAuto ? context.config.run.dir : options.resume_from;
  Json taken;
  if (context.rank() == 0 && Take(path, &section)) {
    taken = {{"targets", section.adapter.targets}, {"train", section.adapter.train}};
    spdlog::warn(
        "{}: its adapters are of other layers than model.adapter means now; it goes on with its "
        "own",
        path);
  }
  taken = Json::parse(BroadcastText(context.world(), taken.dump(), /*root=*/0));
  if (taken.is_null() || context.rank() == 0) return;
  if (taken["targets"].empty()) section.adapter = {};
  taken["targets"].get_to(section.adapter.targets);
  taken["train"].get_to(section.adapter.train);
}

}  // namespace equipoise
