#include "models/stages/model.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "configs/base/error.h"
#include "models/families/modules.h"
#include "models/layers/kv_cache.h"
#include "tests/models/model_support.h"

namespace equipoise {
namespace {

using testing::MakeModel;
using testing::RandomBatch;
using testing::TestModel;
using testing::TinyInternVl;
using testing::TinyText;

TEST_CASE("the head's loss is that of its logits", "[models][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const ModelConfig config = TinyInternVl(false);
  TestModel model = MakeModel(config, dtype);
  MicroBatch batch = RandomBatch(config, {30, 12}, 2, 5);
  const at::Tensor loss = model.stage->Evaluate(batch, {});
  const at::Tensor targets = batch.targets;
  batch.targets = at::Tensor();
  const at::Tensor logits = model.stage->Evaluate(batch, {});
  CHECK(logits.sizes() == at::IntArrayRef({42, config.text.vocab_size}));
  CHECK(logits.scalar_type() == at::kFloat);
  const at::Tensor losses =
      at::cross_entropy_loss(logits, targets, {}, at::Reduction::None) * batch.target_weights;
  CHECK(loss.item<double>() == Approx(losses.sum().item<double>()).epsilon(1e-5));
}

TEST_CASE("generation with a cache equals the full forward pass", "[models][cpu]") {
  const ModelConfig config =
      GENERATE(TinyText("qwen2", true), TinyInternVl(true), testing::TinyQwenVl(/*windows=*/false),
               testing::TinyQwenVl(true), testing::TinyQwen3Vl());
  TestModel model = MakeModel(config);
  MicroBatch whole = RandomBatch(config, {80}, config.has_vision ? 2 : 0, 5);
  whole.targets = at::Tensor();
  const at::Tensor expected = model.stage->Evaluate(whole, {});

  KvCache cache;
  Decoding decoding{{&cache}, {0}, /*greedy=*/false};
  const auto step = [&](int64_t begin, int64_t end) {
    MicroBatch batch;
    batch.input_ids = whole.input_ids.slice(0, begin, end);
    batch.position_ids = whole.position_ids.slice(-1, begin, end);
    batch.cu_seqlens = {0, end - begin};
    if (begin == 0) {
      batch.pixel_values = whole.pixel_values;
      batch.image_positions = whole.image_positions;
      batch.image_grids = whole.image_grids;
    }
    batch.decoding = &decoding;
    decoding.cached = {begin};
    const at::Tensor logits = model.stage->Evaluate(batch, {});
    CHECK(logits.sizes() == at::IntArrayRef({1, config.text.vocab_size}));
    CHECK(testing::RelativeError(logits[0], expected[end - 1]) < 1e-5);
  };
  step(0, 60);
  for (int64_t i = 60; i < 80; ++i) step(i, i + 1);
}

TEST_CASE("layers and parameters have the names of Hugging Face", "[models][cpu]") {
  const auto layers = BuildLayers(TinyInternVl(true));
  std::vector<std::string> names;
  for (const auto& layer : layers) names.push_back(layer->name());
  CHECK(names == std::vector<std::string>{
                     "vision_tower.embeddings", "vision_tower.encoder.layer.0",
                     "vision_tower.encoder.layer.1", "multi_modal_projector",
                     "language_model.model.embed_tokens", "language_model.model.layers.0",
                     "language_model.model.layers.1", "language_model.lm_head"});
  std::vector<std::string> block;
  for (const Parameter* p : layers[1]->parameters()) block.push_back(p->name.substr(29));
  CHECK(block == std::vector<std::string>{
                     "layernorm_before.weight", "attention.q_proj.weight",
                     "attention.k_proj.weight", "attention.v_proj.weight",
                     "attention.q_norm.weight", "attention.k_norm.weight",
                     "attention.projection_layer.weight", "attention.projection_layer.bias",
                     "lambda_1", "layernorm_after.weight", "mlp.fc1.weight", "mlp.fc1.bias",
                     "mlp.fc2.weight", "mlp.fc2.bias", "lambda_2"});
}

TEST_CASE("a tied head lists the embedding's weight once", "[models][cpu]") {
  for (const bool tied : {false, true}) {
    const auto layers = BuildLayers(TinyText("qwen2", tied));
    CHECK(layers.back()->parameters().size() == (tied ? 1 : 2));
    layers[0]->parameters()[0]->trainable = false;
    layers.back()->parameters()[0]->trainable = false;
    CHECK(layers.back()->trainable() == !tied);
  }
}

TEST_CASE("stages of a model keep names, order and a copy of a tied weight", "[models][cpu]") {
  const auto names = [](const auto& layers) {
    std::vector<std::string> all;
    for (const auto& layer : layers) {
      for (const Parameter* p : layer->parameters()) all.push_back(p->name);
    }
    return all;
  };
  const ModelConfig config = TinyText("qwen2", /*tied=*/true);
  std::vector<std::string> whole = names(BuildLayers(config)), parts;
  const auto front = BuildLayers(config, {0, 2}), back = BuildLayers(config, {2, -1});
  for (const auto* stage : {&front, &back}) {
    for (const std::string& name : names(*stage)) parts.push_back(name);
  }
  whole.push_back("model.embed_tokens.weight");  // HeadLayer lists its norm first
  CHECK(parts == whole);
  CHECK(front[0]->parameters()[0]->part.owner);
  CHECK_FALSE(back.back()->parameters().back()->part.owner);
  CHECK(back.back()->parameters().back()->shape == front[0]->parameters()[0]->shape);
}

TEST_CASE("freezing takes modules by name", "[models][cpu]") {
  auto layers = BuildLayers(TinyInternVl(false));
  Freeze(layers, {"vision", "llm"});
  for (const auto& layer : layers) {
    for (const Parameter* p : layer->parameters()) {
      INFO(p->name);
      CHECK(p->trainable == (p->component == "projector"));
    }
  }
  CHECK_THROWS_WITH(CheckModules(TinyInternVl(false), {"llm", "vison"}, "model.freeze"),
                    "model.freeze: this model has no 'vison'; use vision, projector or llm");
  CHECK_THROWS_AS(CheckModules(TinyText("llama", false), {"vision"}, "model.freeze"), ConfigError);
}

TEST_CASE("flat memory keeps the order of the layers, trained ones first, aligned",
          "[models][cpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  TestModel model = MakeModel(TinyInternVl(false), dtype, {"vision"});
  int64_t trained_end = 0, frozen_end = model.flat->gradient().numel(), gradient_end = 0;
  const auto& parameters = model.flat->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = *parameters[i];
    INFO(p.name);
    CHECK(p.value.storage_offset() % 16 == 0);
    int64_t& end = p.trainable ? trained_end : frozen_end;
    CHECK(p.value.storage_offset() >= end);
    CHECK(p.value.scalar_type() == dtype);
    CHECK(p.gradient.defined() == p.trainable);
    CHECK(p.master.defined() == p.trainable);
    CHECK(p.stored().is_same(p.trainable ? p.master : p.value));
    CHECK(model.flat->gradient_offset(i) == (p.trainable ? p.gradient.storage_offset() : -1));
    if (p.trainable) {
      CHECK(p.gradient.storage_offset() >= gradient_end);
      CHECK(p.gradient.storage_offset() == p.value.storage_offset());
      CHECK(p.master.storage_offset() == p.value.storage_offset());
      CHECK(p.value.equal(p.master.to(dtype)));
      CHECK((dtype == at::kFloat) == p.value.is_alias_of(p.master));
      gradient_end = p.gradient.storage_offset() + p.numel();
    }
    end = p.value.storage_offset() + p.numel();
  }
  CHECK(model.flat->master().numel() == model.flat->gradient().numel());
  model.flat->gradient().fill_(1);
  model.flat->ZeroGradient();
  CHECK(model.flat->gradient().count_nonzero().item<int64_t>() == 0);
}

}  // namespace
}  // namespace equipoise
