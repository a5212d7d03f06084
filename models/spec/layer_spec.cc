#include "models/spec/layer_spec.h"

#include <algorithm>

#include "models/spec/tensor_parallel.h"

namespace equipoise {
namespace {

int NextGroup(const LayerSpec& spec) {
  return spec.linear_layers.empty() ? 0 : spec.linear_layers.back().group + 1;
}

}  // namespace

const char* ComponentName(Component component) {
  switch (component) {
    case Component::kEncoder:
      return "vision";
    case Component::kConnector:
      return "projector";
    case Component::kLanguageModel:
      return "llm";
  }
  return "";
}

int64_t ActivationSpec::Rows(const LayerLoad& load, int ranks) const {
  switch (rows) {
    case RowKind::kPatches:
      return (1 + features) * load.patches;
    case RowKind::kImageTokens:
      return (1 + features) * load.image_tokens;
    case RowKind::kTokens:
      return RowShare(load.tokens, shared ? ranks : 1) + features * load.image_tokens;
  }
  return 0;
}

std::vector<int64_t> ActivationSpec::Shape(const LayerLoad& load, int ranks) const {
  if (Elements(load) == 0) return {};
  if (rows_per_tile > 0) return {load.patches / rows_per_tile, rows_per_tile, width};
  return {Rows(load, ranks), width};
}

int64_t LayerSpec::parameter_count() const {
  int64_t count = 0;
  for (const TensorSpec& tensor : parameters) count += tensor.numel();
  return count;
}

int64_t LayerSpec::LargestPart(int tensor_ranks) const {
  int64_t count = 0;
  for (const TensorSpec& tensor : parameters) count += tensor.LargestPart(tensor_ranks);
  return count;
}

int64_t LayerSpec::LargestTrained(int tensor_ranks) const {
  int64_t count = 0;
  for (const TensorSpec& tensor : parameters) {
    if (MayTrain(tensor.role)) count += tensor.LargestPart(tensor_ranks);
  }
  return count;
}

int64_t LayerSpec::LargestBytes(int tensor_ranks, int64_t element_bytes) const {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : parameters) {
    bytes += tensor.LargestBytes(tensor_ranks, element_bytes);
  }
  return bytes;
}

bool LayerSpec::split() const {
  return std::any_of(parameters.begin(), parameters.end(), [](const TensorSpec& tensor) {
    return tensor.split.by != Split::By::kNothing;
  });
}

double LayerSpec::ForwardFlops(const LayerLoad& load) const {
  double flops = 0;
  for (const HalfCost* half : {&attention, &mlp}) {
    for (const Product& product : half->products) {
      flops += 2.0 * product.rows.At(load) * static_cast<double>(product.n * product.k);
    }
    flops += half->AttentionFlops(load);
  }
  return flops;
}

double LayerSpec::BackwardFlops(const LayerLoad& load, bool trained) const {
  double frozen = 0;
  for (const HalfCost* half : {&attention, &mlp}) {
    for (const Product& product : half->products) {
      if (trained && !product.frozen) continue;
      frozen += 2.0 * product.rows.At(load) * static_cast<double>(product.n * product.k);
    }
  }
  return 2.0 * ForwardFlops(load) - frozen +
         0.5 * attention.attention_flops_per_pair * load.token_pairs;
}

void LayerSpec::AddTensor(const std::string& suffix, std::vector<int64_t> sizes, const Init& init) {
  parameters.push_back({name + "." + suffix, std::move(sizes), init, 0, {}});
}

void LayerSpec::AddNorm(const std::string& suffix, int64_t size, bool bias, const Split& split) {
  parameters.push_back({name + "." + suffix + ".weight", {size}, Init::Ones(), 0, split});
  if (bias) parameters.push_back({name + "." + suffix + ".bias", {size}, Init::Zeros(), 0, split});
}

void LayerSpec::AddColumnLinears(const std::vector<std::pair<std::string, Split>>& linears,
                                 int64_t in, bool bias, double deviation) {
  const int group = NextGroup(*this);
  for (const auto& [suffix, out] : linears) {
    linear_layers.push_back({suffix, group, /*row=*/false});
    parameters.push_back(
        {name + "." + suffix + ".weight", {out.whole(), in}, Init::Normal(deviation), 0, out});
  }
  if (!bias) return;
  for (const auto& [suffix, out] : linears) {
    parameters.push_back({name + "." + suffix + ".bias", {out.whole()}, Init::Zeros(), 0, out});
  }
}

void LayerSpec::AddRowLinear(const std::string& suffix, const Split& in, int64_t out, bool bias,
                             double deviation) {
  linear_layers.push_back({suffix, NextGroup(*this), /*row=*/true});
  parameters.push_back(
      {name + "." + suffix + ".weight", {out, in.whole()}, Init::Normal(deviation), 1, in});
  if (bias) AddTensor(suffix + ".bias", {out}, Init::Zeros());
}

bool IsAmong(const LayerSpec& spec, const std::vector<std::string>& components) {
  return std::find(components.begin(), components.end(), ComponentName(spec.component)) !=
         components.end();
}

bool IsTrained(const LayerSpec& spec, const std::vector<std::string>& frozen) {
  const bool tied = !spec.tied.name.empty() && MayTrain(spec.tied.role);
  const bool is_frozen = !spec.unfrozen && IsAmong(spec, frozen);
  return !spec.unused && !is_frozen && (tied || spec.trained_count() > 0);
}

}  // namespace equipoise
