// The files that describe a model, copied beside its weights: what is read there is what was read
// where they come from.
#include "trainer/checkpoint/model_source.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "data/text/tokenizer.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/tiny_tokenizer.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

std::string OtherTokenizer() {
  auto other = TinyTokenizerJson();
  other["added_tokens"][0]["content"] = "<other>";
  return other.dump();
}

TEST_CASE("a tokenizer takes the place of the model's, as a file and as a folder",
          "[model_source][cpu]") {
  const TemporaryFolder folder;
  folder.Write("hf/tokenizer.json", OtherTokenizer());
  folder.Write("hf/tokenizer_config.json", R"({"add_bos_token": true})");
  folder.Write("hf/config.json", "{}");
  folder.Write("own/mine.json", TinyTokenizerJson().dump());
  folder.Write("files/vocab.json", R"({"a": 0})");
  folder.Write("files/merges.txt", "#version: 0.2");
  folder.Write("whole/tokenizer.json", TinyTokenizerJson().dump());
  const auto copied = [&](const char* from) {
    CopyModelDescription(folder / "hf", folder / "to");
    CopyTokenizer(folder / from, folder / "to");
    CHECK(fs::exists(folder / "to/config.json"));
  };
  for (const char* from : {"own/mine.json", "whole"}) {
    copied(from);
    CHECK(Tokenizer::Read(folder / "to").fingerprint() ==
          Tokenizer::Read(folder / from).fingerprint());
    CHECK_FALSE(fs::exists(folder / "to/tokenizer_config.json"));  // of the other one
  }
  copied("files/vocab.json");
  CHECK(fs::exists(folder / "to/vocab.json"));
  CHECK(fs::exists(folder / "to/merges.txt"));
  CHECK_FALSE(fs::exists(folder / "to/tokenizer.json"));
}

TEST_CASE("what lies in its place already stays", "[model_source][cpu]") {
  const TemporaryFolder folder;
  folder.Write("run/config.json", "{}");
  folder.Write("run/tokenizer.json", TinyTokenizerJson().dump());
  fs::create_directory_symlink(folder / "run", folder / "link");
  for (const char* from : {"run", "run/", "link"}) {
    CopyModelDescription(folder / from, folder / "run");
    CopyTokenizer(folder / from, folder / "run");
  }
  CopyTokenizer(folder / "link/tokenizer.json", folder / "run");
  CHECK(ReadWholeFile(folder / "run/tokenizer.json") == TinyTokenizerJson().dump());
  CHECK(ReadWholeFile(folder / "run/config.json") == "{}");
}

TEST_CASE("a model's description is removed, its weights are not", "[model_source][cpu]") {
  const TemporaryFolder folder;
  RemoveModelDescription(folder / "absent");
  for (const char* name : {"config.json", "tokenizer.json", "chat_template.jinja", "merges.txt",
                           "model.safetensors", "model.safetensors.index.json", "notes.md"})
    folder.Write(std::string("model/") + name, "{}");
  folder.Write("model/deep/config.json", "{}");
  RemoveModelDescription(folder / "model");
  for (const char* name : {"config.json", "tokenizer.json", "chat_template.jinja", "merges.txt"})
    CHECK_FALSE(std::filesystem::exists(folder / ("model/" + std::string(name))));
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "notes.md", "deep/config.json"})
    CHECK(std::filesystem::exists(folder / ("model/" + std::string(name))));
}

TEST_CASE("what is copied from a read-only store can be written again", "[model_source][cpu]") {
  const TemporaryFolder folder;
  folder.Write("hf/config.json", "{}");
  folder.Write("hf/tokenizer.json", TinyTokenizerJson().dump());
  for (const char* name : {"hf/config.json", "hf/tokenizer.json"})
    fs::permissions(folder / name, fs::perms::owner_read);
  for (int start = 0; start < 2; ++start) {
    CopyModelDescription(folder / "hf", folder / "to");
    CopyTokenizer(folder / "hf/tokenizer.json", folder / "to");
    for (const char* name : {"to/config.json", "to/tokenizer.json"}) {
      const fs::perms mode = fs::status(folder / name).permissions();
      CHECK((mode & fs::perms::owner_write) == fs::perms::owner_write);
    }
  }
}

}  // namespace
}  // namespace equipoise
