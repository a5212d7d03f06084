// Loss, logits and gradients of one packed row beside those that Transformers computed for the same
// weights. Every family's own twin without fixtures is the `check` command's test.
#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "models/model.h"
#include "models/model_config.h"
#include "models/safetensors.h"
#include "models/stage.h"
#include "tests/models/model_support.h"

namespace equipoise {
namespace {

const char* const kCases[] = {"qwen2-gqa-tied",       "qwen2-gqa-untied",  "llama-mha-untied",
                              "llama3-gqa-ropescaled"};

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
  const SafetensorsReader weights(folder + "/model.safetensors");
  for (Parameter* parameter : result.model.stage->parameters()) {
    weights.ReadInto(parameter->name, parameter->master);
  }
  REQUIRE(weights.entries().size() == result.model.stage->parameters().size());
  result.model.flat->UpdateCompute();
  return result;
}

MicroBatch PackedRow(const Case& c) {
  const SafetensorsReader inputs(c.folder + "/packed_inputs.safetensors");
  MicroBatch batch;
  batch.input_ids = inputs.Read("input_ids")[0];
  batch.position_ids = inputs.Read("position_ids")[0];
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
    batch.image_positions = batch.input_ids.eq(c.config.image_token_id).nonzero().squeeze(1);
  }
  return batch;
}

struct Errors {
  double loss = 0, logits = 0, gradient = 0;
  std::string worst;
};

Errors Compare(Case& c) {
  MicroBatch batch = PackedRow(c);
  const SafetensorsReader expected(c.folder + "/packed_expected.safetensors");
  const SafetensorsReader gradients(c.folder + "/packed_grads_token.safetensors");
  Errors errors;
  const double n = batch.targets.ne(-100).sum().item<double>();
  const at::Tensor loss = c.model.stage->Forward(0, batch, {}, 1.0 / n);
  c.model.stage->Backward(0, {});
  const double wanted = expected.Read("loss_token").item<double>();
  errors.loss = std::abs(loss.item<double>() - wanted) / wanted;

  batch.targets = at::Tensor();
  const at::Tensor logits = expected.Read("logits");
  errors.logits = ((c.model.stage->Evaluate(batch, {}) - logits).abs().max() / logits.abs().max())
                      .item<double>();
  double squares = 0;
  for (const auto& [name, entry] : gradients.entries()) {
    squares += gradients.Read(name).to(at::kDouble).square().sum().item<double>();
  }
  for (const auto& [name, gradient] : c.model.gradients()) {
    const double error =
        testing::RelativeError(gradient, gradients.Read(name), 1e-6 * std::sqrt(squares));
    if (error >= errors.gradient) {
      errors.gradient = error;
      errors.worst = name;
    }
  }
  return errors;
}

TEST_CASE("models equal Transformers on packed rows", "[models][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) {
    std::cout << "skipped: models equal Transformers on packed rows: no fixtures\n";
    return;
  }
  for (const char* name : kCases) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Case c = Load(std::string(fixtures) + "/parity/" + name, dtype);
      const Errors errors = Compare(c);
      INFO(name << " " << dtype << ": loss " << errors.loss << ", logits " << errors.logits
                << ", gradient " << errors.gradient << " of " << errors.worst);
      const bool wide = dtype == at::kFloat;
      CHECK(errors.loss <= (wide ? 1e-6 : 3e-2));
      CHECK(errors.logits <= (wide ? 1e-4 : 3e-2));
      if (wide) CHECK(errors.gradient <= 1e-4);
    }
  }
}

}  // namespace
}  // namespace equipoise
