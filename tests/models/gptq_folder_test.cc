#include "models/weights/gptq_folder.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "configs/base/error.h"
#include "models/spec/model_config.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;
using Tensors = std::map<std::string, at::Tensor>;

constexpr int64_t kIn = 24, kOut = 16, kGroups = 3;

// A fused layer: two groups, each of two query heads, a key's and a value's, of two rows each.
WeightNames Names() {
  const std::string theirs = "blocks.#.wqkv";
  std::vector<Renaming> renamings = {{"blocks.#.q_proj", theirs, {0, 2, 4, 2}},
                                     {"blocks.#.k_proj", theirs, {2, 1, 4, 2}},
                                     {"blocks.#.v_proj", theirs, {3, 1, 4, 2}}};
  ModelConfig config;
  config.naming = WeightNaming::kOriginal;
  return {config, std::move(renamings)};
}

TensorSpec Spec(const std::string& name, int64_t out) {
  TensorSpec spec = {name, {out, kIn}, {}, 0, {}};
  spec.packing = Packing::kGptq;
  spec.gptq.group_size = 8;
  return spec;
}

Tensors Layer(const std::string& module) {
  const at::Tensor inputs = at::arange(kIn, at::kInt);
  return {{module + ".qweight", at::arange(kIn / 8 * kOut, at::kInt).mul(123456789).view({3, 16})},
          {module + ".qzeros", at::arange(kGroups * 2, at::kInt).mul(987654321).view({3, 2})},
          {module + ".scales", at::arange(kGroups * kOut, at::kHalf).mul(0.01).view({3, 16})},
          {module + ".g_idx", inputs.remainder(3).to(at::kInt)}};
}

class Folder {
 public:
  explicit Folder(const Tensors& tensors)
      : path_(std::filesystem::temp_directory_path() / ("gptq_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
    WriteSafetensors((path_ / "model.safetensors").string(), {tensors.begin(), tensors.end()});
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  GptqMatrix Read(const TensorSpec& spec, const MatrixPart& part) const {
    const SafetensorsFolder files(path_.string());
    return ReadGptq(files, WeightMap(files.names(), Names(), path_.string()), spec, part);
  }
  void RequireNoBiasOf(const TensorSpec& spec) const {
    const SafetensorsFolder files(path_.string());
    RequireNoBias(files, WeightMap(files.names(), Names(), path_.string()), spec);
  }

 private:
  std::filesystem::path path_;
};

MatrixPart Whole(const TensorSpec& spec) { return {-1, 0, spec.shape}; }

TEST_CASE("GPTQ's names lead to the weight's", "[gptq][cpu]") {
  CHECK(GptqWeightName("a.b.qweight") == "a.b.weight");
  CHECK(GptqWeightName("a.b.qzeros") == "a.b.weight");
  CHECK(GptqWeightName("a.b.scales") == "a.b.weight");
  CHECK(GptqWeightName("a.b.g_idx") == "a.b.weight");
  CHECK(GptqWeightName("a.b.bias") == "a.b.bias");
}

TEST_CASE("rows of a layer are read, fused ones too", "[gptq][cpu]") {
  const Tensors plain = Layer("blocks.0.o_proj"), fused = Layer("blocks.0.wqkv");
  Tensors all = plain;
  all.insert(fused.begin(), fused.end());
  const Folder folder(all);
  const TensorSpec o = Spec("blocks.0.o_proj.weight", kOut);
  const GptqMatrix whole = folder.Read(o, Whole(o));
  // Element 0 of qweight is 0; its neighbour's nibbles are those of 123456789 = 0x75bcd15.
  CHECK(whole.codes[1].narrow(0, 0, 8).equal(at::tensor({5, 1, 13, 12, 11, 5, 7, 0}, at::kByte)));
  // 987654321 = 0x3ade68b1 has the zeros of outputs 8 to 15 in group 0, less 1.
  CHECK(whole.zeros.select(1, 0).narrow(0, 8, 8).equal(
      at::tensor({2, 12, 9, 7, 15, 14, 11, 4}, at::kByte)));
  CHECK(whole.groups.equal(plain.at("blocks.0.o_proj.g_idx")));
  const GptqMatrix part = folder.Read(o, {0, 5, {4, kIn}});
  CHECK(part.codes.equal(whole.codes.narrow(0, 5, 4)));
  CHECK(part.zeros.equal(whole.zeros.narrow(0, 5, 4)));
  CHECK(part.scales.equal(whole.scales.narrow(0, 5, 4)));
  // The same tensors under a fused name.
  const TensorSpec q = Spec("blocks.0.q_proj.weight", 8), v = Spec("blocks.0.v_proj.weight", 4);
  const auto rows = [&](const std::vector<int64_t>& of_file) {
    return whole.codes.index_select(0, at::tensor(of_file, at::kLong));
  };
  CHECK(folder.Read(q, Whole(q)).codes.equal(rows({0, 1, 2, 3, 8, 9, 10, 11})));
  CHECK(folder.Read(v, Whole(v)).codes.equal(rows({6, 7, 14, 15})));
  CHECK(folder.Read(q, {0, 3, {3, kIn}}).codes.equal(rows({3, 8, 9})));
}

TEST_CASE("what cannot be read is refused by its name", "[gptq][cpu]") {
  struct Row {
    std::function<void(Tensors&)> change;
    const char* words;
  };
  const std::string module = "blocks.0.o_proj";
  const auto set = [&](const char* part, const at::Tensor& tensor) {
    return [&module, part, tensor](Tensors& tensors) { tensors[module + part] = tensor; };
  };
  const Tensors good = Layer(module);
  at::Tensor beyond = good.at(module + ".g_idx").clone(), nan = good.at(module + ".scales").clone();
  beyond[5] = 3;
  nan[0][0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Row> table = {
      {set(".qweight", at::zeros({3, 8}, at::kInt)), "o_proj.qweight has the shape [3, 8]"},
      {set(".qweight", at::zeros({6, 16}, at::kInt)), "needs [3, 16]"},
      {set(".qweight", at::zeros({3, 16}, at::kLong)), "o_proj.qweight is of I64"},
      {set(".qzeros", at::zeros({2, 2}, at::kInt)), "o_proj.qzeros has the shape [2, 2]"},
      {set(".scales", at::zeros({3, 16}, at::kInt)), "o_proj.scales is of I32"},
      {set(".scales", at::zeros({1, 16}, at::kHalf)), "o_proj.scales has the shape [1, 16]"},
      {set(".g_idx", at::zeros({25}, at::kInt)), "o_proj.g_idx has the shape [25]"},
      {set(".g_idx", beyond), "holds the group 3 of 3"},
      {set(".g_idx", beyond.sub(1)), "holds the group -1 of 3"},
      {set(".scales", nan), "infinite or no numbers"},
      {[&](Tensors& tensors) { tensors.erase(module + ".scales"); }, "o_proj.scales: missing"},
      {[&](Tensors& tensors) {
         tensors = {{module + ".weight", at::zeros({kOut, kIn})}};
       },
       "is not in GPTQ's form"}};
  const TensorSpec spec = Spec(module + ".weight", kOut);
  CHECK_NOTHROW(Folder(good).Read(spec, Whole(spec)));
  for (const Row& row : table) {
    INFO(row.words);
    Tensors tensors = good;
    row.change(tensors);
    const Folder folder(tensors);
    CHECK_THROWS_WITH(folder.Read(spec, Whole(spec)), Contains(row.words));
    CHECK_THROWS_AS(folder.Read(spec, Whole(spec)), DataError);
  }
}

TEST_CASE("a bias that the model does not have must be 0", "[gptq][cpu]") {
  const std::string module = "blocks.0.o_proj";
  const TensorSpec spec = Spec(module + ".weight", kOut);
  Tensors tensors = Layer(module);
  CHECK_NOTHROW(Folder(tensors).RequireNoBiasOf(spec));
  tensors[module + ".bias"] = at::zeros({kOut}, at::kHalf);
  CHECK_NOTHROW(Folder(tensors).RequireNoBiasOf(spec));
  tensors[module + ".bias"][3] = 0.5;
  CHECK_THROWS_WITH(Folder(tensors).RequireNoBiasOf(spec), Contains("o_proj.bias: is not 0"));
}

}  // namespace
}  // namespace equipoise
