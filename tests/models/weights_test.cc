#include "models/weights/weights.h"

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "configs/base/error.h"
#include "models/families/presets.h"
#include "models/weights/safetensors.h"
#include "tests/skip_case.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

Parameter Named(const std::string& name, const std::vector<int64_t>& shape) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = shape;
  return parameter;
}

ModelConfig Config() {
  ModelConfig config = PresetConfig("internvl3-1b");
  config.vision.num_hidden_layers = 1;
  config.text.num_hidden_layers = 10;
  config.vision.initializer_range = 0.01;
  config.text.initializer_range = 0.03;
  config.text.vocab_size = 100;
  config.text.pad_token_id = 7;
  return config;
}

TEST_CASE("random weights follow the rules of the architecture", "[models][cpu]") {
  struct Row {
    const char* name;
    std::vector<int64_t> shape;
    double mean, deviation;
  };
  const std::vector<Row> table = {
      {"vision_tower.embeddings.cls_token", {1, 1, 64}, 0, 0},
      {"vision_tower.embeddings.position_embeddings", {1, 17, 64}, 0, 0},
      {"vision_tower.embeddings.patch_embeddings.projection.weight", {64, 3, 14, 14}, 0, 0.01},
      {"vision_tower.encoder.layer.0.lambda_1", {64}, 0.1, 0},
      {"vision_tower.encoder.layer.0.layernorm_before.weight", {64}, 1, 0},
      {"vision_tower.encoder.layer.0.layernorm_before.bias", {64}, 0, 0},
      {"vision_tower.encoder.layer.0.attention.q_proj.weight", {201, 201}, 0, 0.01},
      {"multi_modal_projector.linear_1.weight", {200, 201}, 0, 0.03},
      {"language_model.model.layers.0.self_attn.q_proj.weight", {200, 200}, 0, 0.03},
      {"language_model.model.layers.0.self_attn.q_proj.bias", {200}, 0, 0},
      {"language_model.model.norm.weight", {200}, 1, 0},
      {"language_model.lm_head.weight", {100, 300}, 0, 0.03},
  };
  for (const Row& row : table) {
    INFO(row.name);
    Parameter parameter = Named(row.name, row.shape);
    FlatParameters flat({&parameter}, at::kFloat);
    parameter.master.fill_(9.0);
    InitializeWeights({&parameter}, Config(), 0);
    const auto count = static_cast<double>(parameter.numel());
    const double mean = parameter.master.mean().item<double>();
    CHECK(mean == Approx(row.mean).margin(5 * row.deviation / std::sqrt(count) + 1e-7));
    const double deviation = parameter.master.sub(mean).norm().item<double>() / std::sqrt(count);
    CHECK(deviation == Approx(row.deviation).epsilon(0.02).margin(1e-6));
  }
}

TEST_CASE("random weights depend on seed and name alone", "[models][cpu]") {
  const auto draw = [](const std::string& name, uint64_t seed, const std::vector<int64_t>& shape) {
    Parameter before = Named("language_model.model.layers.9.mlp.up_proj.weight", {3, 5});
    Parameter parameter = Named(name, shape);
    FlatParameters flat({&before, &parameter}, at::kFloat);
    InitializeWeights({&before, &parameter}, Config(), seed);
    return parameter.master.clone();
  };
  const std::string name = "language_model.model.layers.0.mlp.up_proj.weight";
  const at::Tensor one = draw(name, 5, {8, 9});
  CHECK(one.view({9, 8}).equal(draw(name, 5, {9, 8})));
  CHECK_FALSE(one.equal(draw(name, 6, {8, 9})));
  CHECK_FALSE(one.equal(draw("language_model.model.layers.1.mlp.up_proj.weight", 5, {8, 9})));
  // The padding token's row is zero, the others are not.
  const at::Tensor embedding = draw("language_model.model.embed_tokens.weight", 5, {100, 4});
  CHECK(embedding.select(0, 7).abs().sum().item<double>() == 0);
  CHECK(embedding.select(0, 6).abs().sum().item<double>() > 0);
}

TEST_CASE("random weights do not depend on the number of threads", "[models][cpu]") {
  const std::string name = "language_model.model.layers.0.mlp.up_proj.weight";
  const int threads = at::get_num_threads();
  const auto draw = [&](int number, const std::vector<int64_t>& shape, const TensorPart& part) {
    at::set_num_threads(number);
    Parameter parameter = Named(name, shape);
    parameter.part = part;
    FlatParameters flat({&parameter}, at::kFloat);
    InitializeWeights({&parameter}, Config(), 1);
    return parameter.master.clone();
  };
  const at::Tensor whole = draw(1, {301, 257}, {});  // more than a thread draws at a time
  CHECK(whole.equal(draw(3, {301, 257}, {})));
  // Rows and columns of a part, which begin at odd elements.
  CHECK(whole.narrow(0, 33, 201).equal(draw(3, {201, 257}, {.dim = 0, .begin = 33, .whole = 301})));
  CHECK(whole.narrow(1, 33, 71).equal(draw(3, {301, 71}, {.dim = 1, .begin = 33, .whole = 257})));
  at::set_num_threads(threads);
}

TEST_CASE("weights are loaded by any name, and refused when they do not fit", "[models][cpu]") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("weights_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "model.safetensors").string();
  const at::Tensor norm = at::randn({6}), embedding = at::randn({100, 6}).to(at::kBFloat16);

  Parameter a = Named("language_model.model.norm.weight", {6});
  Parameter b = Named("language_model.model.embed_tokens.weight", {100, 6});
  FlatParameters flat({&a, &b}, at::kFloat);
  ModelConfig config = Config();
  const auto load = [&] { LoadWeights({&a, &b}, config, folder.string()); };

  WriteSafetensors(file, {{"model.language_model.norm.weight", norm},
                          {"language_model.model.embed_tokens.weight", embedding},
                          {"lm_head.weight", embedding.add(1)},
                          {"not_used", norm}});
  load();
  CHECK(a.master.equal(norm));
  CHECK(b.master.equal(embedding.to(at::kFloat)));
  config.text.tie_word_embeddings = true;
  CHECK_THROWS_WITH(load(), Contains("tie_word_embeddings"));

  WriteSafetensors(file, {{"model.language_model.norm.weight", norm}});
  CHECK_THROWS_WITH(load(), Contains("1 of 2 weights are missing, first " + b.name));
  WriteSafetensors(file, {{"model.language_model.norm.weight", norm},
                          {"language_model.model.embed_tokens.weight", at::randn({6, 100})}});
  CHECK_THROWS_WITH(load(), Contains("[6, 100]"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("fused and split weights are read as far as they are held", "[models][cpu]") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("fused_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string layer = "vision_tower.encoder.layer.0.";
  const at::Tensor qkv = at::randn({24, 6}), bias = at::randn({24}), out = at::randn({8, 6});
  const std::string theirs = "vision_model.encoder.layers.0.attn.";
  WriteSafetensors((folder / "model.safetensors").string(),
                   {{theirs + "qkv.weight", qkv.to(at::kBFloat16)},
                    {theirs + "qkv.bias", bias},
                    {theirs + "proj.weight", out}});
  std::vector<Parameter> parameters = {Named(layer + "attention.q_proj.weight", {8, 6}),
                                       Named(layer + "attention.k_proj.weight", {3, 6}),
                                       Named(layer + "attention.v_proj.bias", {4}),
                                       Named(layer + "attention.projection_layer.weight", {8, 2})};
  parameters[1].part = {.dim = 0, .begin = 5, .whole = 8};
  parameters[2].part = {.dim = 0, .begin = 0, .whole = 8};
  parameters[3].part = {.dim = 1, .begin = 3, .whole = 6};
  std::vector<Parameter*> list;
  for (Parameter& parameter : parameters) list.push_back(&parameter);
  FlatParameters flat(list, at::kFloat);
  LoadWeights(list, Config(), folder.string());
  const at::Tensor rounded = qkv.to(at::kBFloat16).to(at::kFloat);
  CHECK(parameters[0].master.equal(rounded.narrow(0, 0, 8)));
  CHECK(parameters[1].master.equal(rounded.narrow(0, 8 + 5, 3)));
  CHECK(parameters[2].master.equal(bias.narrow(0, 16, 4)));
  CHECK(parameters[3].master.equal(out.narrow(1, 3, 2)));

  Parameter other = Named(layer + "attention.q_proj.weight", {7, 6});
  FlatParameters other_flat({&other}, at::kFloat);
  CHECK_THROWS_WITH(LoadWeights({&other}, Config(), folder.string()),
                    Contains("[24, 6]") && Contains("[21, 6]"));
  std::filesystem::remove_all(folder);
}

// InternLM2's wqkv: of each of two key/value heads two query heads, the key, the value.
TEST_CASE("weights interleaved by key/value head are read and written", "[models][cpu]") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("interleaved_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  ModelConfig config = Config();
  config.naming = WeightNaming::kOriginal;
  config.text.model_type = "internlm2";
  config.text.num_attention_heads = 4;
  config.text.num_key_value_heads = 2;
  const std::string layer = "language_model.model.layers.0.self_attn.";
  const std::string theirs = "language_model.model.layers.0.attention.wqkv.weight";
  const at::Tensor wqkv = at::randn({2 * 4 * 3, 5});  // heads of 3 rows
  WriteSafetensors((folder / "model.safetensors").string(), {{theirs, wqkv}});
  const at::Tensor heads = wqkv.view({2, 4, 3, 5});
  const at::Tensor q = heads.narrow(1, 0, 2).reshape({12, 5});
  const at::Tensor k = heads.narrow(1, 2, 1).reshape({6, 5});
  const at::Tensor v = heads.narrow(1, 3, 1).reshape({6, 5});

  // A rank's heads, part of a head, columns, and all.
  std::vector<Parameter> parameters = {
      Named(layer + "q_proj.weight", {6, 5}), Named(layer + "q_proj.weight", {5, 5}),
      Named(layer + "k_proj.weight", {6, 2}), Named(layer + "v_proj.weight", {6, 5})};
  parameters[0].part = {.dim = 0, .begin = 6, .whole = 12};
  parameters[1].part = {.dim = 0, .begin = 4, .whole = 12};
  parameters[2].part = {.dim = 1, .begin = 3, .whole = 5};
  std::vector<Parameter*> list;
  for (Parameter& parameter : parameters) list.push_back(&parameter);
  FlatParameters flat(list, at::kFloat);
  LoadWeights(list, config, folder.string());
  CHECK(parameters[0].master.equal(q.narrow(0, 6, 6)));
  CHECK(parameters[1].master.equal(q.narrow(0, 4, 5)));
  CHECK(parameters[2].master.equal(k.narrow(1, 3, 2)));
  CHECK(parameters[3].master.equal(v));

  const auto written = NamedForFolder(
      {{layer + "q_proj.weight", q}, {layer + "k_proj.weight", k}, {layer + "v_proj.weight", v}},
      config);
  REQUIRE(written.size() == 1);
  CHECK(written.at(theirs).equal(wqkv));
  std::filesystem::remove_all(folder);
}

TEST_CASE("rows added to a part's vocabulary are the mean of its own", "[models][cpu]") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("added_rows_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const at::Tensor embedding = at::randn({98, 6}), norm = at::randn({6});
  const at::Tensor mean = embedding.to(at::kDouble).sum(0).div(98.0);
  WriteSafetensors((folder / "model.safetensors").string(),
                   {{"model.embed_tokens.weight", embedding},
                    {"lm_head.weight", embedding.clone()},  // equal, as the configuration ties it
                    {"model.norm.weight", norm}});
  const std::string name = "language_model.model.embed_tokens.weight";
  std::vector<Parameter> parameters = {Named(name, {100, 6}), Named(name, {50, 6}),
                                       Named(name, {50, 6}), Named(name, {1, 6}),
                                       Named("language_model.model.norm.weight", {6})};
  for (const auto& [index, begin] : {std::pair(1, 0), {2, 50}, {3, 99}})
    parameters[static_cast<size_t>(index)].part = {.dim = 0, .begin = begin, .whole = 100};
  std::vector<Parameter*> list;
  for (Parameter& parameter : parameters) list.push_back(&parameter);
  FlatParameters flat(list, at::kFloat);
  LoadWeights(list, Config(), {folder.string(), "language_model.", 2});
  CHECK(parameters[0].master.narrow(0, 0, 98).equal(embedding));
  for (const int64_t row : {98, 99})
    CHECK(parameters[0].master.select(0, row).equal(mean.to(at::kFloat)));
  for (const size_t part : {1U, 2U, 3U}) {
    const int64_t begin = parameters[part].part.begin;
    CHECK(parameters[part].master.equal(
        parameters[0].master.narrow(0, begin, parameters[part].shape[0])));
  }
  CHECK(parameters[4].master.equal(norm));
  CHECK_THROWS_WITH(CheckWeights(list, Config(), {folder.string(), "language_model.", 1}),
                    Contains("has the shape [98, 6], the model needs [99, 6]"));
  CHECK_THROWS_WITH(CheckWeights(list, Config(), {folder.string(), "language_model.", 0}),
                    Contains("the model needs [100, 6]"));
  CHECK_THROWS_WITH(CheckWeights(list, Config(), {folder.string(), "vision_tower.", 2}),
                    Contains("5 of 5 weights are missing"));
  const std::string wrapped = "language_model.base_model.model.model.norm.weight";
  WriteSafetensors((folder / "model.safetensors").string(), {{wrapped, norm}});
  CHECK_THROWS_WITH(CheckWeights(list, Config(), {folder.string()}),
                    Contains("its LoRA adapters are not merged (" + wrapped + "); merge them") &&
                        Contains("tools/merge_lora.py"));
  std::filesystem::remove_all(folder);
}

// That this process has read so far, by any system call; nothing where the kernel does not count.
std::optional<int64_t> BytesRead() {
  std::ifstream counters("/proc/self/io");
  std::string key;
  int64_t value = 0;
  while (counters >> key >> value) {
    if (key == "rchar:") return value;
  }
  return std::nullopt;
}

TEST_CASE("a rank reads the bytes of its part alone", "[models][cpu]") {
  if (!BytesRead()) return testing::SkipCase("the kernel does not count what is read");
  const auto folder = std::filesystem::temp_directory_path() / ("part_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string layer = "vision_tower.encoder.layer.0.";
  const std::string theirs = "vision_model.encoder.layers.0.attn.";
  const at::Tensor qkv = at::randn({3 * 512, 512}), out = at::randn({512, 512});
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    WriteSafetensors(
        (folder / "model.safetensors").string(),
        {{theirs + "qkv.weight", qkv.to(dtype)}, {theirs + "proj.weight", out.to(dtype)}});
    Parameter rows = Named(layer + "attention.k_proj.weight", {128, 512});
    rows.part = {.dim = 0, .begin = 256, .whole = 512};
    Parameter columns = Named(layer + "attention.projection_layer.weight", {512, 128});
    columns.part = {.dim = 1, .begin = 256, .whole = 512};
    FlatParameters flat({&rows, &columns}, at::kFloat);
    const int64_t before = *BytesRead();
    LoadWeights({&rows, &columns}, Config(), folder.string());
    const int64_t read = *BytesRead() - before;
    const int64_t held =
        (rows.numel() + columns.numel()) * static_cast<int64_t>(at::elementSize(dtype));
    INFO("read " << read << " bytes for " << held);
    CHECK(read >= held);
    CHECK(read < held + 4096);  // the header; all four parts are 8 times as many
    CHECK(rows.master.equal(qkv.narrow(0, 512 + 256, 128).to(dtype).to(at::kFloat)));
    CHECK(columns.master.equal(out.narrow(1, 256, 128).to(dtype).to(at::kFloat)));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("weights are named as the folder that they came from", "[models][cpu]") {
  const std::string layer = "vision_tower.encoder.layer.0.attention.";
  const at::Tensor q = at::randn({4, 6}), k = at::randn({4, 6}), v = at::randn({4, 6});
  const std::map<std::string, at::Tensor> ours = {{layer + "q_proj.weight", q},
                                                  {layer + "k_proj.weight", k},
                                                  {layer + "v_proj.weight", v},
                                                  {"multi_modal_projector.linear_2.weight", q},
                                                  {"language_model.model.norm.weight", k}};
  ModelConfig original = Config();
  original.naming = WeightNaming::kOriginal;
  const auto theirs = NamedForFolder(ours, original);
  REQUIRE(theirs.size() == 3);
  const at::Tensor& fused = theirs.at("vision_model.encoder.layers.0.attn.qkv.weight");
  REQUIRE(fused.size(0) == 12);
  CHECK(fused.narrow(0, 0, 4).equal(q));
  CHECK(fused.narrow(0, 4, 4).equal(k));
  CHECK(fused.narrow(0, 8, 4).equal(v));
  CHECK(theirs.at("mlp1.3.weight").equal(q));
  CHECK(theirs.at("language_model.model.norm.weight").equal(k));
  CHECK(NamedForFolder(ours, Config()).size() == 5);
}

}  // namespace
}  // namespace equipoise
