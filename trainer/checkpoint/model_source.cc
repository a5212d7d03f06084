#include "trainer/checkpoint/model_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <vector>

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

bool IsSame(const fs::path& a, const fs::path& b) {
  std::error_code none;  // one that is not there is no other
  return fs::equivalent(a, b, none);
}

// In place of a file that may be read-only, as a copy is of what lies in a shared store.
void CopyOver(const fs::path& from, const fs::path& to, std::error_code& error) {
  fs::remove(to, error);
  if (!error) fs::copy_file(from, to, error);
  if (!error) fs::permissions(to, fs::perms::owner_write, fs::perm_options::add, error);
}

void RequireWritten(const std::string& to, const std::error_code& error) {
  if (!error) return;
  throw RunError(
      fmt::format("{}: cannot write: {}; free or change the folder", to, error.message()));
}

// Copies the files that describe a model, and that `taken` takes by their names.
void CopyDescription(const std::string& from, const std::string& to,
                     bool (*taken)(const fs::path&)) {
  if (IsSame(from, to)) return;
  std::error_code error;
  fs::create_directories(to, error);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    if (error) break;
    if (!entry.is_regular_file() || !taken(entry.path())) continue;
    CopyOver(entry.path(), fs::path(to) / entry.path().filename(), error);
  }
  RequireWritten(to, error);
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

void RemoveModelDescription(const std::string& folder) {
  std::error_code none;  // what stays is written over
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (entry.is_regular_file(none) && DescribesModel(entry.path())) fs::remove(entry.path(), none);
  }
}

void CopyBesideConfig(const std::string& from, const std::string& to) {
  CopyDescription(from, to, [](const fs::path& file) {
    return DescribesModel(file) && file.filename() != "config.json";
  });
}

void CopyAskingDescription(const std::string& from, const std::string& to) {
  CopyDescription(from, to, DescribesAsking);
}

void CopyTokenizer(const std::string& from, const std::string& to) {
  const std::vector<const char*> beside = {"merges.txt", "tokenizer_config.json",
                                           "added_tokens.json"};
  const fs::path file(from);
  const bool folder = fs::is_directory(file);
  if (IsSame(folder ? file : file.parent_path(), to)) return;
  std::error_code error;
  // Of another tokenizer, whose file could be read in place of this one's.
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"})
    fs::remove(fs::path(to) / name, error);
  for (const char* name : beside) fs::remove(fs::path(to) / name, error);
  if (folder) return CopyModelDescription(from, to);
  fs::create_directories(to, error);
  const char* as = file.filename() == "vocab.json" ? "vocab.json"
                   : file.extension() == ".model"  ? "tokenizer.model"
                                                   : "tokenizer.json";
  if (!error) CopyOver(file, fs::path(to) / as, error);
  for (const char* name : beside) {
    const fs::path other = file.parent_path() / name;
    if (!error && fs::exists(other)) CopyOver(other, fs::path(to) / name, error);
  }
  RequireWritten(to, error);
}

}  // namespace equipoise
