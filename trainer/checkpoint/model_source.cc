#include "trainer/checkpoint/model_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "configs/base/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/settings/hub_cache.h"

namespace equipoise {
namespace fs = std::filesystem;

namespace {

// The source for a checkpoint folder RUN/checkpoints/step-XXXXXXXX.
ModelSource FromCheckpoint(const fs::path& checkpoint) {
  const fs::path run = fs::weakly_canonical(checkpoint).parent_path().parent_path();
  ModelSource source;
  source.folder = ModelDescriptionFolder(run.string());
  source.checkpoint = checkpoint.string();
  source.run_config = (run / "config.yaml").string();
  if (!fs::exists(fs::path(source.folder) / "config.json")) {
    throw DataError(
        fmt::format("{}: {}/config.json is missing; keep checkpoints inside their run folder",
                    checkpoint.string(), source.folder));
  }
  return source;
}

bool DescribesModel(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string suffix = file.extension().string();
  if (name.find("safetensors") != std::string::npos || name.starts_with("pytorch_model")) {
    return false;  // weights and their index
  }
  if (name == "quantize_config.json") return false;  // AutoGPTQ's: config.json says it too
  // .py: the modelling code in OpenGVLab's folders.
  return suffix == ".json" || suffix == ".jinja" || suffix == ".txt" || suffix == ".model" ||
         suffix == ".py";
}

}  // namespace

std::string ModelDescriptionFolder(const std::string& run_dir) { return run_dir + "/model"; }

ModelSource FindModel(const std::string& given) {
  const std::string path = OrOnHub(given, HubKind::kModel);
  const fs::path folder(path);
  if (!fs::is_directory(folder)) {
    throw DataError(fmt::format(
        "{}: no such folder; give a Hugging Face folder, a run folder or a step-* folder", path));
  }
  // A model that was exported into a run's folder is older than its checkpoints.
  const bool run = fs::exists(folder / "config.yaml") && fs::exists(folder / "checkpoints");
  if (fs::exists(folder / "config.json") && !run) return {path, "", ""};
  if (fs::exists(folder / "index.json")) return FromCheckpoint(folder);
  const std::string checkpoint =
      FindCheckpoint(path, {}, "used; train again in another run.dir, or give another run folder");
  if (!checkpoint.empty()) return FromCheckpoint(checkpoint);
  throw DataError(fmt::format(
      "{}: neither config.json nor a checkpoint is in it; give a Hugging Face folder, a "
      "run folder or a step-* folder",
      path));
}

void RequireHuggingFaceBase(const ModelSource& source, const std::string& path) {
  if (source.checkpoint.empty()) return;
  throw ConfigError(fmt::format(
      "--adapter: goes over a Hugging Face folder, {} is a run; `equipoise export` it first",
      path));
}

namespace {

// Copies the files that describe a model, and that `taken` takes by their names.
void CopyDescription(const std::string& from, const std::string& to,
                     bool (*taken)(const fs::path&)) {
  std::error_code error;
  fs::create_directories(to, error);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    if (error) break;
    if (!entry.is_regular_file() || !taken(entry.path())) continue;
    fs::copy_file(entry.path(), fs::path(to) / entry.path().filename(),
                  fs::copy_options::overwrite_existing, error);
  }
  if (error) {
    throw RunError(
        fmt::format("{}: cannot write: {}; free or change the folder", to, error.message()));
  }
}

bool DescribesAsking(const fs::path& file) {
  const std::string name = file.filename().string();
  const bool code = file.extension() == ".py";
  return DescribesModel(file) && !code && name != "config.json" && name != "adapter_config.json";
}

}  // namespace

void CopyModelDescription(const std::string& from, const std::string& to) {
  CopyDescription(from, to, DescribesModel);
}

void CopyAskingDescription(const std::string& from, const std::string& to) {
  CopyDescription(from, to, DescribesAsking);
}

}  // namespace equipoise
