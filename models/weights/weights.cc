#include "models/weights/weights.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <xxhash.h>

#include <cmath>

#include "configs/base/error.h"
#include "models/spec/weight_map.h"
#include "models/weights/safetensors.h"

namespace equipoise {
namespace {

// SplitMix64's finalizer: turns a counter into independent looking bits.
uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// In (0, 1].
double Uniform(uint64_t key, uint64_t counter) {
  const uint64_t bits = Mixed(key + (counter + 1) * 0x9e3779b97f4a7c15ULL) >> 11;
  return (static_cast<double>(bits) + 1.0) * 0x1p-53;
}

// Elements [first, last) of a tensor, to `out`. Box-Muller: elements 2k and 2k + 1 come from
// uniform numbers 2k and 2k + 1.
void FillRun(uint64_t key, double deviation, int64_t first, int64_t last, float* out) {
  constexpr double kTwoPi = 6.283185307179586;
  for (int64_t i = first / 2 * 2; i < last; i += 2) {
    const auto counter = static_cast<uint64_t>(i);
    const double radius = deviation * std::sqrt(-2.0 * std::log(Uniform(key, counter)));
    const double angle = kTwoPi * Uniform(key, counter + 1);
    if (i >= first) *out++ = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < last) *out++ = static_cast<float>(radius * std::sin(angle));
  }
}

// An element's number depends on its index in the whole tensor.
void FillNormal(uint64_t key, double deviation, const Parameter& parameter, float* out) {
  const TensorPart& part = parameter.part;
  const int64_t count = parameter.numel();
  if (!part.split()) return FillRun(key, deviation, 0, count, out);
  const auto dim = static_cast<size_t>(part.dim);
  int64_t inner = 1;
  for (size_t d = dim + 1; d < parameter.shape.size(); ++d) inner *= parameter.shape[d];
  const int64_t run = parameter.shape[dim] * inner;
  int64_t from = part.begin * inner;
  for (int64_t done = 0; done < count; done += run, from += part.whole * inner) {
    FillRun(key, deviation, from, from + run, out + done);
  }
}

bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

void InitializeOne(Parameter& parameter, const ModelConfig& config, uint64_t seed) {
  const std::string name = CanonicalWeightName(parameter.name, config.has_vision);
  const bool vision = name.compare(0, 13, "vision_tower.") == 0;
  at::Tensor& weight = parameter.stored();
  if (EndsWith(name, "lambda_1") || EndsWith(name, "lambda_2")) {
    weight.fill_(config.vision.layer_scale_init_value);
  } else if (EndsWith(name, ".bias") || EndsWith(name, "cls_token") ||
             EndsWith(name, "position_embeddings")) {
    weight.zero_();
  } else if (parameter.shape.size() == 1) {  // a norm's weight
    weight.fill_(1.0);
  } else {
    const uint64_t key = XXH3_64bits_withSeed(name.data(), name.size(), seed);
    const bool in_place = weight.is_cpu() && weight.scalar_type() == at::kFloat;
    const at::Tensor host = in_place ? weight : at::empty(weight.sizes(), at::kFloat);
    FillNormal(key, vision ? config.vision.initializer_range : config.text.initializer_range,
               parameter, host.mutable_data_ptr<float>());
    if (!in_place) weight.copy_(host);
    const bool pads = config.text.pad_token_id >= 0 && EndsWith(name, "embed_tokens.weight");
    const int64_t row = config.text.pad_token_id - parameter.part.begin;
    if (pads && 0 <= row && row < parameter.shape[0]) weight.select(0, row).zero_();
  }
}

// Throws DataError unless the files have all parameters, with their shapes.
void RequireWeights(const std::vector<Parameter*>& parameters, const SafetensorsFolder& files,
                    const WeightMap& map) {
  std::string first_missing;
  int64_t missing = 0;
  for (const Parameter* parameter : parameters) {
    const FileWeight weight = map.Find(parameter->name);
    if (weight.name.empty()) {
      if (missing++ == 0) first_missing = parameter->name;
      continue;
    }
    files.FileOf(weight.name)
        .CheckShape(weight.name, parameter->shape, parameter->part, {weight.part, weight.parts});
  }
  if (missing == 0) return;
  throw DataError(files.path() + ": " + std::to_string(missing) + " of " +
                  std::to_string(parameters.size()) + " weights are missing, first " +
                  first_missing + "; do config.json and the weights belong together?");
}

// A folder whose configuration ties the head may hold the head all the same; then it must say the
// same, or the folder would be read as another model than the one that was saved.
// Each rank looks at the rows of the embedding that it holds.
void CheckTiedHead(const std::vector<Parameter*>& parameters, const SafetensorsFolder& folder,
                   const WeightMap& map, const ModelConfig& config) {
  if (!config.text.tie_word_embeddings) return;
  const std::string head =
      map.Find(std::string(config.has_vision ? "language_model." : "") + "lm_head.weight").name;
  if (head.empty()) return;
  for (const Parameter* parameter : parameters) {
    if (!EndsWith(parameter->name, "embed_tokens.weight")) continue;
    const std::string embedding = map.Find(parameter->name).name;
    const SafetensorsReader &of_head = folder.FileOf(head),
                            &of_embedding = folder.FileOf(embedding);
    const int64_t first = parameter->part.begin, last = first + parameter->shape[0];
    if (of_head.entries().at(head).shape == of_embedding.entries().at(embedding).shape &&
        of_head.ReadRows(head, first, last).equal(of_embedding.ReadRows(embedding, first, last))) {
      continue;
    }
    throw DataError(internal::Join("", folder.path(), ": tie_word_embeddings is true, but ", head,
                                   " differs from ", embedding,
                                   "; set it to false in config.json"));
  }
}

// Throws DataError where an element is not finite.
bool OnlyZeros(const at::Tensor& values, const std::string& file, const std::string& name) {
  if (values.numel() == 0) return false;
  const auto [least, most] = at::aminmax(values);
  const double low = least.item<double>(), high = most.item<double>();
  if (std::isfinite(low) && std::isfinite(high)) return low == 0 && high == 0;
  throw DataError(file + ": tensor " + name +
                  ": holds values that are infinite or no numbers; download or write it again");
}

}  // namespace

void InitializeWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config,
                       uint64_t seed) {
  for (Parameter* parameter : parameters) InitializeOne(*parameter, config, seed);
}

std::vector<std::string> LoadWeights(const std::vector<Parameter*>& parameters,
                                     const ModelConfig& config, const std::string& folder) {
  const SafetensorsFolder files(folder);
  const WeightMap map(files.names(), config.has_vision, folder);
  RequireWeights(parameters, files, map);
  std::vector<std::string> zeros;
  for (Parameter* parameter : parameters) {
    const FileWeight weight = map.Find(parameter->name);
    files.FileOf(weight.name)
        .ReadInto(weight.name, parameter->stored(), parameter->part, {weight.part, weight.parts});
    const bool none = OnlyZeros(parameter->stored(), files.FileOf(weight.name).path(), weight.name);
    if (none && parameter->shape.size() == 2 && EndsWith(weight.name, ".weight"))
      zeros.push_back(weight.name);
  }
  CheckTiedHead(parameters, files, map, config);
  return zeros;
}

void CheckWeights(const std::vector<Parameter*>& parameters, const ModelConfig& config,
                  const std::string& folder) {
  const SafetensorsFolder files(folder);
  RequireWeights(parameters, files, WeightMap(files.names(), config.has_vision, folder));
}

std::map<std::string, at::Tensor> NamedForFolder(const std::map<std::string, at::Tensor>& tensors,
                                                 WeightNaming naming) {
  std::map<std::string, at::Tensor> named;
  std::map<std::string, std::vector<at::Tensor>> fused;
  for (const auto& [name, tensor] : tensors) {
    const FileWeight weight = NameInFolder(name, naming);
    if (weight.parts == 1) {
      named[weight.name] = tensor;
      continue;
    }
    std::vector<at::Tensor>& parts = fused[weight.name];
    parts.resize(static_cast<size_t>(weight.parts));
    parts[static_cast<size_t>(weight.part)] = tensor;
  }
  for (const auto& [name, parts] : fused) named[name] = at::cat(parts);
  return named;
}

}  // namespace equipoise
