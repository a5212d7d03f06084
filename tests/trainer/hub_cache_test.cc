#include "trainer/settings/hub_cache.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

// Environment variables for the time of a test.
class Environment {
 public:
  ~Environment() {
    for (const char* name : kNames) unsetenv(name);
  }
  // The given one alone.
  static void Set(const char* name, const std::string& value) {
    for (const char* each : kNames) unsetenv(each);
    setenv(name, value.c_str(), 1);
  }

 private:
  static constexpr const char* kNames[] = {"HF_HUB_CACHE",   "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                           "XDG_CACHE_HOME", "MODELSCOPE_CACHE",      "HOME"};
};

std::string Made(const std::string& folder) {
  fs::create_directories(folder);
  return folder;
}

TEST_CASE("names of the Hub are folders of its cache, wherever that is", "[hub_cache][cpu]") {
  const ScratchFolder scratch;
  const std::string repository = scratch.Path("hub/models--Org--Model-1.5B");
  const std::string main = Made(repository + "/snapshots/aaa");
  Made(repository + "/snapshots/bbb");
  Made(repository + "/refs");
  WriteText(repository + "/refs/main", "aaa");
  const Environment environment;
  const auto find = [](const std::string& path) { return CachedOnHub(path, HubKind::kModel); };
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    Environment::Set(name, scratch.Path("hub"));
    CHECK(find("Org/Model-1.5B") == main);
  }
  Environment::Set("HF_HOME", scratch.path());
  CHECK(find("Org/Model-1.5B") == main);
  CHECK(find("Org/Model-1.5B/part") == main + "/part");
  CHECK_FALSE(CachedOnHub("Org/Model-1.5B", HubKind::kDataset));
  for (const char* other : {"Org/Model", "Model-1.5B", "org/Model-1.5B", "/Org/Model-1.5B",
                            "../Model-1.5B", "Org/..", "Org/", "", "./Org", "Org--Model-1.5B"}) {
    INFO(other);
    CHECK_FALSE(find(other));
    CHECK(OrOnHub(other, HubKind::kModel) == other);
  }
  fs::rename(scratch.Path("hub"), Made(scratch.Path("huggingface")) + "/hub");
  Environment::Set("XDG_CACHE_HOME", scratch.path());
  const std::string moved = scratch.Path("huggingface/hub/models--Org--Model-1.5B/snapshots/");
  CHECK(find("Org/Model-1.5B") == moved + "aaa");
  fs::rename(scratch.Path("huggingface"), Made(scratch.Path(".cache")) + "/huggingface");
  Environment::Set("HOME", scratch.path());
  CHECK(find("Org/Model-1.5B").value_or("").ends_with("/aaa"));
}

TEST_CASE("without `main` the only revision is taken, of several none", "[hub_cache][cpu]") {
  const ScratchFolder scratch;
  const Environment environment;
  Environment::Set("HF_HUB_CACHE", scratch.path());
  const std::string snapshots = scratch.Path("datasets--o--d/snapshots");
  CHECK_FALSE(CachedOnHub("o/d", HubKind::kDataset));
  Made(snapshots);
  CHECK_FALSE(CachedOnHub("o/d", HubKind::kDataset));
  const std::string one = Made(snapshots + "/one");
  CHECK(CachedOnHub("o/d", HubKind::kDataset) == one);
  CHECK(CachedOnHub("o/d/data/a.jsonl", HubKind::kDataset) == one + "/data/a.jsonl");
  Made(snapshots + "/two");
  CHECK_FALSE(CachedOnHub("o/d", HubKind::kDataset));
}

TEST_CASE("ModelScope's folders, with dots as it writes them", "[hub_cache][cpu]") {
  const ScratchFolder scratch;
  const Environment environment;
  const std::string models = Made(scratch.Path(".cache/modelscope/hub/models/Qwen/Qwen2___5-VL"));
  Environment::Set("HOME", scratch.path());
  CHECK(CachedOnHub("Qwen/Qwen2.5-VL", HubKind::kModel) == models);
  CHECK_FALSE(CachedOnHub("Qwen/Qwen2.5-VL", HubKind::kDataset));
  const std::string older = Made(scratch.Path("scope/hub/Qwen/Qwen2-VL"));
  Environment::Set("MODELSCOPE_CACHE", scratch.Path("scope"));
  CHECK(CachedOnHub("Qwen/Qwen2-VL", HubKind::kModel) == older);
}

TEST_CASE("a folder that is there comes before the Hub's of its name", "[hub_cache][cpu]") {
  const ScratchFolder scratch;
  const Environment environment;
  Environment::Set("HF_HUB_CACHE", scratch.path());
  const std::string cached = Made(scratch.Path("models--here--model/snapshots/a"));
  RunConfig config;
  config.model.hf = "here/model";
  config.model.llm = scratch.path();
  config.data.train.push_back({.annotations = "here/model", .images = "."});
  ResolveHubNames(config);
  CHECK(config.model.hf == cached);
  CHECK(config.model.vision.empty());
  CHECK(config.model.llm == scratch.path());
  CHECK(config.data.train[0].annotations == "here/model");  // a model, no data set
  CHECK(config.data.train[0].images == ".");
  CHECK(AdviceForMissing("here/other").find("hf download here/other") != std::string::npos);
  CHECK(AdviceForMissing("/models/other").find("hf download") == std::string::npos);
}

}  // namespace
}  // namespace equipoise
