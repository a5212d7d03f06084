#include "trainer/settings/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "models/families/model_parts.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

struct HubName {
  std::string org, name, rest;  // the rest begins with a slash, where there is any
};

bool IsWord(std::string_view text) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         text.find("--") == text.npos && text.find("..") == text.npos &&
         std::all_of(text.begin(), text.end(), allowed);
}

std::optional<HubName> NameIn(const std::string& path) {
  const size_t slash = path.find('/');
  if (slash == path.npos) return std::nullopt;
  const size_t end = std::min(path.find('/', slash + 1), path.size());
  HubName name{path.substr(0, slash), path.substr(slash + 1, end - slash - 1), path.substr(end)};
  if (!IsWord(name.org) || !IsWord(name.name)) return std::nullopt;
  return name;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first that is not empty.
std::string FirstOf(const std::vector<std::string>& values) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [](const std::string& value) { return !value.empty(); });
  return found == values.end() ? "" : *found;
}

std::string Under(const std::string& folder, const char* path) {
  return folder.empty() ? "" : folder + path;
}

std::string HuggingFaceCache() {
  const std::string caches =
      FirstOf({Variable("XDG_CACHE_HOME"), Under(Variable("HOME"), "/.cache")});
  const std::string home = FirstOf({Variable("HF_HOME"), Under(caches, "/huggingface")});
  return FirstOf(
      {Variable("HF_HUB_CACHE"), Variable("HUGGINGFACE_HUB_CACHE"), Under(home, "/hub")});
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The snapshot of a repository's folder in Hugging Face's cache.
std::optional<std::string> SnapshotIn(const std::string& repository) {
  std::string revision;
  if (std::getline(std::ifstream(repository + "/refs/main"), revision)) {
    std::string snapshot = repository + "/snapshots/" + revision;
    if (!revision.empty() && IsFolder(snapshot)) return snapshot;
  }
  std::vector<std::string> snapshots;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(repository + "/snapshots", error))
    snapshots.push_back(entry.path());
  if (snapshots.size() != 1) return std::nullopt;
  return snapshots.front();
}

// Where ModelScope's program has kept models, in its versions.
std::optional<std::string> InModelScope(const HubName& name) {
  std::string folder;
  for (const char c : name.name) folder += c == '.' ? std::string("___") : std::string(1, c);
  const std::string home = Under(Variable("HOME"), "/.cache/modelscope");
  const std::string cache = FirstOf({Variable("MODELSCOPE_CACHE"), home});
  for (const char* within : {"/models/", "/hub/models/", "/hub/", "/"}) {
    const std::string organisation = cache + within + name.org + "/";
    for (const std::string& each : {folder, name.name}) {
      if (IsFolder(organisation + each)) return organisation + each;
    }
  }
  return std::nullopt;
}

void TakeEncoderNamed(ModelSection& model) {
  if (model.hf.empty() || !model.vision.empty() || !model.llm.empty()) return;
  const std::optional<std::string> encoder = EncoderNamedIn(model.hf);
  if (!encoder) return;
  const std::string folder = OrOnHub(*encoder, HubKind::kModel);
  if (!IsFolder(folder)) return;
  model.vision = folder;
  model.llm = std::exchange(model.hf, "");
}

}  // namespace

std::optional<std::string> CachedOnHub(const std::string& path, HubKind kind) {
  const std::optional<HubName> name = NameIn(path);
  if (!name) return std::nullopt;
  std::optional<std::string> folder = SnapshotIn(
      fmt::format("{}/{}--{}--{}", HuggingFaceCache(),
                  kind == HubKind::kModel ? "models" : "datasets", name->org, name->name));
  if (!folder && kind == HubKind::kModel) folder = InModelScope(*name);
  if (!folder) return std::nullopt;
  return *folder + name->rest;
}

std::string OrOnHub(const std::string& path, HubKind kind) {
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) return path;
  return CachedOnHub(path, kind).value_or(path);
}

std::string AdviceForMissing(const std::string& path) {
  const std::optional<HubName> name = NameIn(path);
  if (!name || !name->rest.empty())
    return "; download or prepare the model first, or correct the path";
  return fmt::format(
      ", and no model of this name in {}; correct the path, or where it is a name on the Hub, `hf "
      "download {}`",
      HuggingFaceCache(), path);
}

void ResolveHubNames(RunConfig& config) {
  ModelSection& model = config.model;
  for (std::string* path :
       {&model.hf, &model.vision, &model.llm, &model.adapter.init, &config.data.tokenizer})
    *path = OrOnHub(*path, HubKind::kModel);
  TakeEncoderNamed(model);
  for (std::vector<SourceConfig>* sources :
       {&config.data.train, &config.data.eval, &config.eval.answers}) {
    for (SourceConfig& source : *sources) {
      source.annotations = OrOnHub(source.annotations, HubKind::kDataset);
      source.images = OrOnHub(source.images, HubKind::kDataset);
    }
  }
}

}  // namespace equipoise
