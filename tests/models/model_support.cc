#include "tests/models/model_support.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "models/stages/model.h"

namespace equipoise::testing {

at::Tensor Normal(const std::vector<int64_t>& shape, uint64_t seed, double scale) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kFloat).mul_(scale);
}

ModelConfig TinyText(const std::string& family, bool tied) {
  ModelConfig config;
  config.model_type = family;
  TextConfig& text = config.text;
  text.model_type = family;
  text.hidden_size = 32;
  text.intermediate_size = 48;
  text.num_hidden_layers = 2;
  text.num_attention_heads = 4;
  text.num_key_value_heads = family == "llama" ? 4 : 2;
  text.head_dim = 8;
  text.vocab_size = 67;
  text.pad_token_id = 7;
  text.attention_bias = family == "qwen2";
  text.use_qk_norm = family == "qwen3";
  text.tie_word_embeddings = tied;
  return config;
}

ModelConfig TinyInternVl(bool large_form) {
  ModelConfig config = TinyText(large_form ? "llama" : "qwen2", /*tied=*/false);
  config.model_type = "internvl";
  config.has_vision = true;
  config.image_token_id = 66;
  VisionConfig& vision = config.vision;
  vision.hidden_size = 24;
  vision.intermediate_size = 40;
  vision.num_hidden_layers = 2;
  vision.num_attention_heads = 3;
  vision.image_size = 16;
  vision.patch_size = 4;
  vision.norm_type = large_form ? "rms_norm" : "layer_norm";
  vision.use_qk_norm = large_form;
  vision.attention_bias = !large_form;
  return config;
}

ModelConfig TinyLlava() {
  ModelConfig config = TinyInternVl(/*large_form=*/true);
  config.model_type = "llava";
  config.downsample_ratio = 1;
  VisionConfig& vision = config.vision;
  vision.model_type = "clip_vision_model";
  vision.num_hidden_layers = 3;
  vision.feature_layers = 2;
  vision.patch_size = 8;
  vision.norm_type = "layer_norm";
  vision.use_qk_norm = false;
  vision.attention_bias = true;
  vision.layer_norm_eps = 1e-5;
  vision.hidden_act = "quick_gelu";
  return config;
}

std::map<std::string, at::Tensor> TestModel::gradients() const {
  std::map<std::string, at::Tensor> all;
  for (const Parameter* parameter : stage->parameters()) {
    all[parameter->name] =
        parameter->gradient.defined() ? parameter->gradient.clone() : at::Tensor();
  }
  return all;
}

TestModel MakeModel(const ModelConfig& config, at::ScalarType dtype,
                    const std::vector<std::string>& freeze, const std::vector<int64_t>& range,
                    const TensorParallel& tensor) {
  auto layers = BuildLayers(config, {}, tensor);
  Freeze(layers, freeze);
  if (!range.empty()) {
    layers.erase(layers.begin() + range[1], layers.end());
    layers.erase(layers.begin(), layers.begin() + range[0]);
  }
  TestModel model;
  model.stage = std::make_unique<Stage>(std::move(layers));
  model.flat = std::make_unique<FlatParameters>(model.stage->parameters(), dtype);
  for (Parameter* parameter : model.stage->parameters()) {
    const bool is_norm = parameter->name.find("norm") != std::string::npos &&
                         parameter->name.find("weight") != std::string::npos;
    const at::Tensor whole =
        Normal(parameter->whole_shape(), std::hash<std::string>()(parameter->name), 0.2);
    parameter->stored().copy_(PartOf(is_norm ? whole.add(1) : whole, *parameter));
  }
  model.flat->UpdateCompute();
  return model;
}

MicroBatch RandomBatch(const ModelConfig& config, const std::vector<int64_t>& lengths,
                       int64_t tiles, uint64_t seed) {
  MicroBatch batch;
  batch.cu_seqlens = {0};
  std::vector<at::Tensor> positions;
  for (int64_t length : lengths) {
    batch.cu_seqlens.push_back(batch.cu_seqlens.back() + length);
    positions.push_back(at::arange(length, at::kLong));
  }
  const int64_t tokens = batch.cu_seqlens.back();
  at::Generator generator = at::detail::createCPUGenerator(seed);
  batch.input_ids = at::randint(60, {tokens}, generator, at::kLong);
  batch.targets = at::randint(60, {tokens}, generator, at::kLong);
  batch.targets.masked_fill_(at::rand({tokens}, generator).lt(0.4), -100);
  batch.target_weights = at::rand({tokens}, generator, at::kFloat).add_(0.5);
  batch.position_ids = lengths.empty() ? at::empty({0}, at::kLong) : at::cat(positions);
  for (int64_t end : batch.cu_seqlens) {
    if (end > 0) batch.targets[end - 1] = -100;
  }
  if (tiles > 0) {
    const int64_t size = config.vision.image_size, count = tiles * config.tokens_per_tile();
    batch.pixel_values = at::randn({tiles, 3, size, size}, generator, at::kFloat);
    batch.image_positions = at::arange(1, count + 1, at::kLong);
    batch.input_ids.narrow(0, 1, count).fill_(config.image_token_id);
    batch.targets.narrow(0, 0, count).fill_(-100);
  }
  return batch;
}

at::Tensor PartOf(const at::Tensor& whole, const Parameter& parameter) {
  const TensorPart& part = parameter.part;
  if (!part.split()) return whole;
  return whole.narrow(part.dim, part.begin, parameter.shape[static_cast<size_t>(part.dim)]);
}

double RelativeError(const at::Tensor& a, const at::Tensor& b, double floor) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return x.sub(y).norm().item<double>() / std::max(y.norm().item<double>(), floor);
}

}  // namespace equipoise::testing
