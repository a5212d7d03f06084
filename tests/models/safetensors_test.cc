#include "models/weights/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "configs/base/error.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

class TempFolder {
 public:
  TempFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("safetensors_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST_CASE("tensors come back as they were written", "[models][cpu]") {
  const TempFolder folder;
  const std::map<std::string, at::Tensor> tensors = {
      {"flag", at::tensor({1, 0, 1}, at::kLong).to(at::kBool)},
      {"scalar", at::tensor(2.5f)},
      {"empty", at::zeros({0, 3})},
      {"half", at::arange(5, at::kFloat).to(at::kHalf)},
      {"brain", at::randn({3, 4}).to(at::kBFloat16)},
      {"long", at::arange(6, at::kLong).view({2, 3})},
      {"weight", at::randn({7, 5})}};
  WriteSafetensors(folder / "a.safetensors", {tensors.begin(), tensors.end()}, {{"format", "pt"}});
  const SafetensorsReader reader(folder / "a.safetensors");
  CHECK(reader.metadata().at("format") == "pt");
  REQUIRE(reader.entries().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    const at::Tensor read = reader.Read(name);
    CHECK(read.scalar_type() == tensor.scalar_type());
    CHECK(read.equal(tensor));
    // Every tensor is aligned to its element, so that others can view it in place.
    CHECK(reader.entries().at(name).begin % tensor.element_size() == 0);
  }
}

TEST_CASE("a tensor is read into memory that is there, rows alone too", "[models][cpu]") {
  const TempFolder folder;
  const at::Tensor weight = at::randn({2100, 1000});  // more than one piece of a conversion
  WriteSafetensors(folder / "a.safetensors", {{"f", weight}, {"b", weight.to(at::kBFloat16)}});
  const SafetensorsReader reader(folder / "a.safetensors");
  at::Tensor target = at::empty({2100, 1000});
  reader.ReadInto("f", target);
  CHECK(target.equal(weight));
  reader.ReadInto("b", target);
  CHECK(target.equal(weight.to(at::kBFloat16).to(at::kFloat)));
  CHECK(reader.ReadRows("f", 3, 11).equal(weight.slice(0, 3, 11)));
  CHECK(reader.ReadRows("f", 5, 5).numel() == 0);
  at::Tensor other = at::empty({1000, 2100});
  CHECK_THROWS_WITH(reader.ReadInto("f", other), Contains("[2100, 1000]"));
  CHECK_THROWS_WITH(reader.Read("g"), Contains("holds no tensor"));
}

TEST_CASE("a part of a tensor is read alone, along any dimension", "[models][cpu]") {
  const TempFolder folder;
  const at::Tensor weight = at::randn({6, 5, 7});
  WriteSafetensors(folder / "a.safetensors", {{"f", weight}, {"b", weight.to(at::kBFloat16)}});
  const SafetensorsReader reader(folder / "a.safetensors");
  for (int dim = 0; dim < 3; ++dim) {
    for (const int64_t begin : {0, 2, 4}) {
      for (const int64_t size : {0, 1}) {
        const at::Tensor expected = weight.narrow(dim, begin, size);
        TensorPart part;
        part.dim = dim;
        part.begin = begin;
        part.whole = weight.size(dim);
        at::Tensor target = at::empty(expected.sizes());
        reader.ReadInto("f", target, part);
        CHECK(target.equal(expected));
        reader.ReadInto("b", target, part);
        CHECK(target.equal(expected.to(at::kBFloat16).to(at::kFloat)));
        part.whole += 1;
        CHECK_THROWS_WITH(reader.ReadInto("f", target, part), Contains("has the shape [6, 5, 7]"));
      }
    }
  }
}

TEST_CASE("a disk that takes nothing gives a RunError", "[models][cpu]") {
  CHECK_THROWS_AS(WriteSafetensors("/dev/full", {{"a", at::zeros({4})}}), RunError);
  CHECK_THROWS_AS(WriteSafetensors("/nowhere/a", {{"a", at::zeros({4})}}), RunError);
}

TEST_CASE("a folder's shards are found through its index", "[models][cpu]") {
  const TempFolder folder;
  CHECK_THROWS_WITH(SafetensorsFolder(folder.path()), Contains("holds no weights"));
  WriteSafetensors(folder / "one", {{"a", at::zeros({2})}, {"b", at::zeros({3})}});
  WriteSafetensors(folder / "two", {{"c", at::zeros({4})}, {"b", at::zeros({3})}});
  const auto write_index = [&](const std::string& text) {
    std::ofstream(folder / "model.safetensors.index.json") << text;
  };
  const auto open = [&] { return std::make_unique<SafetensorsFolder>(folder.path()); };

  write_index(R"({"weight_map": {"a": "one", "c": "two"}})");
  const auto shards = open();
  CHECK(shards->names() == std::vector<std::string>{"a", "c"});
  CHECK(shards->FileOf("c").Read("c").numel() == 4);

  write_index(R"({"weight_map": {"a": "one", "b": "one", "c": "two"}})");
  CHECK_THROWS_WITH(open(), Contains("in two shards"));
  write_index(R"({"weight_map": {"a": "two"}})");
  CHECK_THROWS_WITH(open(), Contains("does not hold a"));
  write_index(R"({"weight_map": {"a": "three"}})");
  CHECK_THROWS_WITH(open(), Contains("cannot be opened"));
  for (const char* name :
       {"\"../one\"", "\"/etc/passwd\"", "\"..\"", "\"\"", "5", "\"one\\u0000\""}) {
    INFO(name);
    write_index(std::string(R"({"weight_map": {"a": )") + name + "}}");
    CHECK_THROWS_WITH(open(), Contains("no file name"));
  }
  for (const char* text : {"[]", "{}", R"({"weight_map": []})"}) {
    write_index(text);
    CHECK_THROWS_WITH(open(), Contains("weight_map"));
  }
}

}  // namespace
}  // namespace equipoise
