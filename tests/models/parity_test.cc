// Loss, logits and gradients of one packed row beside those that Transformers computed for the same
// weights. Every family's own twin without fixtures is the `check` command's test.
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "models/families/families.h"
#include "models/spec/model_config.h"
#include "models/stages/model.h"
#include "models/stages/stage.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"
#include "tests/models/model_support.h"
#include "tests/skip_case.h"

namespace equipoise {
namespace {

struct Model {
  const char* name;
  // Transformers' own bf16 gradients beside its fp32 ones, the worst parameter (SDPA, on the CPU).
  double own_error;
  // And what its bf16 run leaves where a gradient is zero, as a share of the global norm.
  double own_noise = 1.4e-5;
};
const Model kModels[] = {{"qwen2-gqa-tied", 0.0316},     {"qwen2-gqa-untied", 0.0754},
                         {"llama-mha-untied", 0.0302},   {"llama3-gqa-ropescaled", 0.0270},
                         {"internvl-vit-qwen2", 0.0429}, {"internvl-vit6b-llama", 0.0349},
                         {"llava-clip-llama", 0.0398},   {"llava-siglip-qwen2", 0.0370, 2.6e-5},
                         {"qwen2-vl", 0.0432},           {"qwen2_5-vl", 0.0360}};

struct Case {
  std::string folder;
  ModelConfig config;
  testing::TestModel model;
};

Case Load(const std::string& folder, at::ScalarType dtype) {
  Case result;
  result.folder = folder;
  result.config = ReadModelConfig(folder);
  result.model = testing::MakeModel(result.config, dtype);
  const std::vector<Parameter*> parameters = result.model.stage->parameters();
  LoadWeights(parameters, result.config, folder);
  const WeightNames names = WeightNamesOf(result.config);
  size_t held = 0;
  const SafetensorsReader weights(folder + "/model.safetensors");
  for (const auto& [name, entry] : weights.entries()) {
    held += names.Ours(name).size();
  }
  REQUIRE(held == parameters.size());
  result.model.flat->UpdateCompute();
  result.model.flat->DropMasters();
  return result;
}

MicroBatch PackedRow(const Case& c) {
  const SafetensorsReader inputs(c.folder + "/packed_inputs.safetensors");
  MicroBatch batch;
  batch.input_ids = inputs.Read("input_ids")[0];
  const at::Tensor positions = inputs.Read("position_ids");  // multimodal ones are [3, 1, tokens]
  batch.position_ids = positions.select(positions.dim() - 2, 0).contiguous();
  const at::Tensor cu_seqlens = inputs.Read("cu_seqlens").to(at::kLong);
  batch.cu_seqlens.assign(cu_seqlens.data_ptr<int64_t>(),
                          cu_seqlens.data_ptr<int64_t>() + cu_seqlens.numel());
  const at::Tensor labels = inputs.Read("labels")[0];
  batch.targets = at::full_like(labels, -100);
  for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const int64_t begin = batch.cu_seqlens[s], count = batch.cu_seqlens[s + 1] - begin - 1;
    batch.targets.narrow(0, begin, count).copy_(labels.narrow(0, begin + 1, count));
  }
  if (c.config.has_vision) {
    batch.pixel_values = inputs.Read("pixel_values");
    if (inputs.Has("image_grid_thw"))
      batch.image_grids = inputs.Read("image_grid_thw").narrow(1, 1, 2).contiguous();
    batch.image_positions = batch.input_ids.eq(c.config.image_token_id).nonzero().squeeze(1);
  }
  return batch;
}

struct Errors {
  double loss = 0, logits = 0, gradient = 0;
  std::string worst;
  // Largest norm of a gradient that is zero in exact arithmetic (a ViT's key biases shift every
  // score of a row alike), over the global norm. What the reference holds there is its own noise.
  double noise = 0, reference_noise = 0;
};

// What a row is expected to give: its loss, under that name, and logits, of whose rows those are
// the row's where `rows` is defined.
struct Expected {
  SafetensorsReader file;
  std::string loss;
  at::Tensor rows;
};

Errors CompareRow(Case& c, MicroBatch batch, const Expected& expected,
                  const SafetensorsReader& gradients) {
  Errors errors;
  const double n = batch.targets.ne(-100).sum().item<double>();
  const at::Tensor loss = c.model.stage->Forward(0, batch, {}, 1.0 / n);
  c.model.stage->Backward(0, {});
  const double wanted = expected.file.Read(expected.loss).item<double>();
  errors.loss = std::abs(loss.item<double>() - wanted) / wanted;

  batch.targets = at::Tensor();
  at::Tensor logits = expected.file.Read("logits");
  if (expected.rows.defined()) logits = logits.index({expected.rows});
  errors.logits = ((c.model.stage->Evaluate(batch, {}) - logits).abs().max() / logits.abs().max())
                      .item<double>();
  double squares = 0;
  for (const auto& [name, entry] : gradients.entries()) {
    squares += gradients.Read(name).to(at::kDouble).square().sum().item<double>();
  }
  const double norm = std::sqrt(squares);
  const bool zero_key_biases = c.config.has_vision && !c.config.vision.use_qk_norm;
  std::map<std::string, at::Tensor> ours;
  for (const auto& [name, gradient] : c.model.gradients()) {
    if (gradient.defined()) {
      CHECK(gradient.isfinite().all().item<bool>());  // no comparison below sees NaN
      ours[name] = gradient;
    } else {  // a weight that takes no part
      CHECK(gradients.Read(name).count_nonzero().item<int64_t>() == 0);
    }
  }
  // The file's names are of another form than an exported folder's, for some families.
  const WeightNames names = WeightNamesOf(c.config);
  std::map<std::string, std::string> in_file;
  for (const auto& [name, entry] : gradients.entries()) in_file[names.Canonical(name)] = name;
  for (const auto& [name, gradient] : NamedForFolder(ours, c.config)) {
    const at::Tensor reference = gradients.Read(in_file.at(names.Canonical(name)));
    if (zero_key_biases && name.rfind("vision_tower", 0) == 0 &&
        name.find("k_proj.bias") != std::string::npos) {
      errors.noise = std::max(errors.noise, gradient.norm().item<double>() / norm);
      errors.reference_noise =
          std::max(errors.reference_noise, reference.norm().item<double>() / norm);
      continue;
    }
    const double error = testing::RelativeError(gradient, reference, 1e-6 * norm);
    if (error >= errors.gradient) {
      errors.gradient = error;
      errors.worst = name;
    }
  }
  return errors;
}

Errors Compare(Case& c) {
  return CompareRow(
      c, PackedRow(c),
      {SafetensorsReader(c.folder + "/packed_expected.safetensors"), "loss_token", {}},
      SafetensorsReader(c.folder + "/packed_grads_token.safetensors"));
}

// The rows of a batch that is padded on the right, one after the other as segments of one row.
MicroBatch RowsWithoutPadding(const Case& c, const SafetensorsReader& inputs) {
  const at::Tensor mask = inputs.Read("attention_mask").ne(0);
  const at::Tensor ids = inputs.Read("input_ids"), labels = inputs.Read("labels");
  MicroBatch batch;
  batch.input_ids = ids.masked_select(mask);
  batch.targets = at::full_like(batch.input_ids, -100);
  batch.cu_seqlens = {0};
  std::vector<at::Tensor> positions;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const int64_t count = mask[row].sum().item<int64_t>(), begin = batch.cu_seqlens.back();
    positions.push_back(at::arange(count, at::kLong));
    batch.targets.narrow(0, begin, count - 1).copy_(labels[row].narrow(0, 1, count - 1));
    batch.cu_seqlens.push_back(begin + count);
  }
  batch.position_ids = at::cat(positions);
  batch.image_positions = batch.input_ids.eq(c.config.image_token_id).nonzero().squeeze(1);
  return batch;
}

TEST_CASE("pictures of any resolution equal those of Transformers", "[models][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) {
    return testing::SkipCase("no fixtures");
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Case c = Load(std::string(fixtures) + "/parity/llava-next-clip-llama", dtype);
    const SafetensorsReader inputs(c.folder + "/inputs.safetensors");
    MicroBatch batch = RowsWithoutPadding(c, inputs);
    batch.image_grids = inputs.Read("image_sizes");
    const ImageSpec images = ImageSpecOf(c.config);
    const at::Tensor pixels = inputs.Read("pixel_values");  // tiles of each picture, and zeros
    std::vector<at::Tensor> tiles;
    for (const PatchGrid& size : GridsOf(batch)) {
      const int64_t count = images.TilesOf(images.LoadOfGrid(size).patches);
      tiles.push_back(pixels[std::ssize(tiles)].narrow(0, 0, count));
    }
    batch.pixel_values = at::cat(tiles);
    const Errors errors = CompareRow(c, batch,
                                     {SafetensorsReader(c.folder + "/expected.safetensors"), "loss",
                                      inputs.Read("attention_mask").ne(0)},
                                     SafetensorsReader(c.folder + "/grads.safetensors"));
    const bool wide = dtype == at::kFloat;
    INFO(dtype << ": loss " << errors.loss << ", logits " << errors.logits << ", gradient "
               << errors.gradient << " of " << errors.worst << ", noise " << errors.noise
               << " beside " << errors.reference_noise);
    CHECK(errors.loss <= (wide ? 1e-6 : 3e-2));
    CHECK(errors.logits <= (wide ? 1e-4 : 3e-2));
    CHECK(errors.gradient <= (wide ? 1e-4 : 5e-2));
    CHECK(errors.noise <= (wide ? 4 * errors.reference_noise : 1.5 * 1.4e-5));
  }
}

TEST_CASE("models equal Transformers on packed rows", "[models][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) {
    return testing::SkipCase("no fixtures");
  }
  for (const Model& model : kModels) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Case c = Load(std::string(fixtures) + "/parity/" + model.name, dtype);
      const Errors errors = Compare(c);
      const bool wide = dtype == at::kFloat;
      INFO(model.name << " " << dtype << ": loss " << errors.loss << ", logits " << errors.logits
                      << ", gradient " << errors.gradient << " of " << errors.worst << ", noise "
                      << errors.noise << " beside " << errors.reference_noise);
      CHECK(errors.loss <= (wide ? 1e-6 : 3e-2));
      CHECK(errors.logits <= (wide ? 1e-4 : 3e-2));
      CHECK(errors.gradient <= (wide ? 1e-4 : std::max(5e-2, 1.5 * model.own_error)));
      CHECK(errors.noise <= (wide ? 4 * errors.reference_noise : 1.5 * model.own_noise));
    }
  }
}

}  // namespace
}  // namespace equipoise
