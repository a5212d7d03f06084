#include "trainer/checkpoint/merge_adapters.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <map>
#include <string>

#include "configs/base/error.h"
#include "parallel/packed_weight.h"

namespace equipoise {
namespace {

constexpr int64_t kTokens = 64;  // of the text that logits are compared on

double Largest(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }

// Logits of a text of tokens that are spread over the vocabulary.
at::Tensor Logits(const LoadedModel& model) {
  const int64_t vocabulary = model.config.text.vocab_size;
  const int64_t count = std::min(kTokens, model.config.text.max_position_embeddings > 0
                                              ? model.config.text.max_position_embeddings
                                              : kTokens);
  MicroBatch batch;
  batch.position_ids = at::arange(count, at::kLong);
  batch.input_ids = (batch.position_ids * (vocabulary / count)).remainder(vocabulary);
  if (model.config.image_token_id >= 0) {  // stands for a picture
    batch.input_ids.masked_fill_(batch.input_ids == model.config.image_token_id, 0);
  }
  batch.cu_seqlens = {0, count};
  return model.stage->Evaluate(batch, {});
}

using ByName = std::map<std::string, Parameter*>;

Parameter* Find(const ByName& parameters, const std::string& name) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? nullptr : found->second;
}

// Merges the adapter of one linear layer; returns the largest change of a weight.
double MergeOne(const ByName& parameters, const std::string& layer, double scale,
                at::ScalarType dtype) {
  Parameter& weight = *parameters.at(layer + ".weight");
  const Parameter& a = *parameters.at(layer + ".lora_A.weight");
  Parameter& b = *parameters.at(layer + ".lora_B.weight");
  const at::Tensor before = weight.packs ? weight.packed->Unpacked(at::kFloat) : weight.value;
  at::Tensor merged = before + at::mm(b.value, a.value).mul_(scale);
  Parameter* magnitude = Find(parameters, layer + ".lora_magnitude_vector.weight");
  if (magnitude != nullptr) {
    merged.mul_((magnitude->value / merged.square().sum(1).sqrt()).unsqueeze(1));
  }
  const double change = Largest(merged - before);
  merged = merged.to(dtype).to(at::kFloat);
  if (magnitude != nullptr) magnitude->value.copy_(merged.square().sum(1).sqrt());
  b.value.zero_();
  if (weight.packs) {
    weight.packs = false;
    weight.packed.reset();
    weight.value = merged;
  } else {
    weight.value.copy_(merged);
  }
  return change;
}

}  // namespace

MergeDifference MergeAdapters(LoadedModel& model, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const std::string suffix = ".lora_B.weight";
  const at::Tensor adapted = Logits(model);
  MergeDifference difference;
  for (const auto& layer : model.stage->layers()) {
    ByName parameters;
    for (Parameter* parameter : layer->parameters()) parameters[parameter->name] = parameter;
    for (const auto& [name, parameter] : parameters) {
      if (!name.ends_with(suffix)) continue;
      const std::string linear = name.substr(0, name.size() - suffix.size());
      difference.weight = std::max(
          difference.weight, MergeOne(parameters, linear, layer->spec().adapter_scale, dtype));
    }
  }
  const at::Tensor merged = Logits(model);
  difference.logit = Largest(merged - adapted);
  difference.largest_logit = Largest(adapted);
  difference.tokens = adapted.size(0);
  return difference;
}

}  // namespace equipoise
