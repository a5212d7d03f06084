#include "models/weights.h"

#include <ATen/ops/randn.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "configs/error.h"
#include "models/safetensors.h"

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
  ModelConfig config;
  config.has_vision = true;
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
  const auto draw = [](const std::string& name, uint64_t seed, std::vector<int64_t> shape) {
    Parameter before = Named("language_model.model.layers.9.mlp.up_proj.weight", {3, 5});
    Parameter parameter = Named(name, shape);
    FlatParameters flat({&before, &parameter}, at::kFloat);
    InitializeWeights({&before, &parameter}, Config(), seed);
    return parameter.master.clone();
  };
  const std::string name = "language_model.model.layers.0.mlp.up_proj.weight";
  const at::Tensor one = draw(name, 5, {8, 9});
  CHECK(one.equal(draw("model.language_model.layers.0.mlp.up_proj.weight", 5, {8, 9})));
  CHECK(one.view({9, 8}).equal(draw(name, 5, {9, 8})));
  CHECK_FALSE(one.equal(draw(name, 6, {8, 9})));
  CHECK_FALSE(one.equal(draw("language_model.model.layers.1.mlp.up_proj.weight", 5, {8, 9})));
  // The padding token's row is zero, the others are not.
  const at::Tensor embedding = draw("language_model.model.embed_tokens.weight", 5, {100, 4});
  CHECK(embedding.select(0, 7).abs().sum().item<double>() == 0);
  CHECK(embedding.select(0, 6).abs().sum().item<double>() > 0);
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

}  // namespace
}  // namespace equipoise
