#include "tests/models/model_support.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "models/families/families.h"
#include "models/spec/any_resolution.h"
#include "models/spec/grid_positions.h"
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

ModelConfig TinyLlavaNext() {
  ModelConfig config = TinyLlava();
  config.model_type = "llava_next";
  config.vision.patch_size = 16;
  config.image_grid_pinpoints = {{16, 48}, {48, 16}};
  return config;
}

ModelConfig TinyLlavaOnevision() {
  ModelConfig config = TinyInternVl(/*large_form=*/false);
  config.model_type = "llava_onevision";
  config.downsample_ratio = 1;
  config.image_grid_pinpoints = {{48, 32}, {16, 32}};
  config.anyres_max_tiles = 2;
  config.video_token_id = 65;
  VisionConfig& vision = config.vision;
  vision.model_type = "siglip_vision_model";
  vision.feature_layers = 2;
  vision.patch_size = 8;
  vision.class_token = false;
  vision.hidden_act = "gelu_pytorch_tanh";
  return config;
}

ModelConfig TinyQwenVl(bool windows) {
  ModelConfig config = TinyText("qwen2", /*tied=*/!windows);
  config.model_type = windows ? "qwen2_5_vl" : "qwen2_vl";
  config.naming = WeightNaming::kOriginal;
  config.has_vision = true;
  config.image_token_id = 66;
  config.video_token_id = 65;
  config.text.mrope_section = {1, 1, 2};
  VisionConfig& vision = config.vision;
  vision.hidden_size = 24;
  vision.intermediate_size = windows ? 40 : 48;
  vision.num_hidden_layers = 2;
  vision.num_attention_heads = 3;
  vision.patch_size = vision.temporal_patch_size = 2;
  vision.class_token = false;
  vision.attention_bias = true;
  vision.norm_type = windows ? "rms_norm" : "layer_norm";
  vision.hidden_act = windows ? "silu" : "quick_gelu";
  vision.window_size = windows ? 8 : 0;
  if (windows) vision.full_attention = {1};
  return config;
}

ModelConfig TinyQwen3Vl() {
  ModelConfig config = TinyQwenVl(/*windows=*/false);
  config.model_type = "qwen3_vl";
  config.naming = WeightNaming::kModules;
  const std::vector<int64_t> sections = {2, 1, 1};
  config.text = TinyText("qwen3", /*tied=*/false).text;
  config.text.mrope_section = sections;
  config.text.mrope_interleaved = true;
  config.text.deepstack_layers = 2;
  config.vision.hidden_act = "gelu_pytorch_tanh";
  config.vision.num_position_embeddings = 25;
  config.vision.deepstack_visual_indexes = {0, 1};
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

namespace {

// Gives a row pictures that are grids, and videos of two times, one after the other from its second
// token on.
void AddGrids(const ImageSpec& images, int64_t pictures, at::Generator& generator,
              MicroBatch& batch) {
  constexpr std::array<PatchGrid, 6> kTokens = {
      {{2, 2}, {1, 3}, {2, 1, 2, 2}, {1, 2}, {1, 2, 2, 0.5F}, {3, 1}}};
  std::vector<PatchGrid> grids;
  std::vector<int64_t> begins;
  int64_t tokens = 0, patches = 0;
  for (int64_t i = 0; i < pictures; ++i) {
    const PatchGrid& shape = kTokens[static_cast<size_t>((i + batch.tokens()) % kTokens.size())];
    grids.push_back(
        {shape.rows * images.merge, shape.columns * images.merge, shape.times, shape.time_step});
    begins.push_back(1 + tokens);
    tokens += shape.patches();
    patches += grids.back().patches();
  }
  const int64_t all = batch.tokens();
  at::Tensor positions = at::empty({3, all}, at::kLong);
  for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    int64_t* first = positions.data_ptr<int64_t>() + batch.cu_seqlens[s];
    const std::vector<TokenGrid> inside =
        s == 0 ? TokenGrids(begins, grids, images.merge) : std::vector<TokenGrid>();
    WriteGridPositions(inside, batch.cu_seqlens[s + 1] - batch.cu_seqlens[s],
                       {first, first + all, first + 2 * all});
  }
  batch.position_ids = positions;
  if (pictures == 0) return;
  batch.image_grids = GridTensor(grids);
  batch.pixel_values = at::randn({patches, images.patch_numbers()}, generator, at::kFloat);
  batch.image_positions = at::arange(1, tokens + 1, at::kLong);
}

// Gives a row pictures of any resolution, one after the other from its second token on. A lone one
// is tall, of seven tokens, or of twelve that are brought down; else they are in turn square, of
// three, with padding on both sides, and wide, of five; or one tile each, of five, and the last a
// video of two frames, of three.
void AddSizes(const ImageSpec& images, int64_t pictures, at::Generator& generator,
              MicroBatch& batch) {
  const PatchGrid tall{48, 17}, square{10, 10}, wide{20, 60};
  std::vector<PatchGrid> sizes;
  PictureLoad load;
  for (int64_t i = 0; i < pictures; ++i) {
    sizes.push_back(pictures == 1 ? tall : i % 2 == 0 ? square : wide);
    if (images.lone_tiles && pictures > 1) {
      sizes.back() = i + 1 < pictures ? OnlySquare(images) : VideoOfFrames(2);
    }
    load += images.LoadOfGrid(sizes.back());
  }
  if (pictures == 0) return;
  const int64_t side = images.tile_size;
  batch.image_grids = GridTensor(sizes);
  batch.pixel_values =
      at::randn({images.TilesOf(load.patches), 3, side, side}, generator, at::kFloat);
  batch.image_positions = at::arange(1, load.image_tokens + 1, at::kLong);
}

}  // namespace

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
  const ImageSpec images = ImageSpecOf(config);
  if (images.has_grids()) AddGrids(images, tiles, generator, batch);
  if (images.kind == ImageSpec::Kind::kAnyRes) AddSizes(images, tiles, generator, batch);
  if (tiles > 0) {
    if (!images.lists_grids()) {
      const int64_t size = config.vision.image_size, tokens_of = tiles * config.tokens_per_tile();
      batch.pixel_values = at::randn({tiles, 3, size, size}, generator, at::kFloat);
      batch.image_positions = at::arange(1, tokens_of + 1, at::kLong);
    }
    const int64_t count = batch.image_positions.size(0);
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
