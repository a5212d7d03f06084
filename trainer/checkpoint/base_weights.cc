#include "trainer/checkpoint/base_weights.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/weights/peft_folder.h"
#include "models/weights/safetensors.h"
#include "models/weights/unused_weights.h"
#include "models/weights/weights.h"
#include "parallel/packed_weight.h"
#include "trainer/checkpoint/first_folders.h"
#include "trainer/common/durable_file.h"

namespace equipoise {
namespace {

std::vector<Parameter*> AdaptersAmong(const std::vector<Parameter*>& parameters) {
  std::vector<Parameter*> adapters;
  for (Parameter* parameter : parameters) {
    if (parameter->role == ParameterRole::kAdapter) adapters.push_back(parameter);
  }
  return adapters;
}

// A whole weight, of no mesh, without its values.
Parameter WholeWeight(const TensorSpec& spec) {
  Parameter whole;
  whole.name = spec.name;
  whole.shape = spec.shape;
  whole.packs = spec.packing != Packing::kNone;
  return whole;
}

// The norms of a weight's rows, in fp32; `set` gives the weight its values, which are dropped.
at::Tensor NormsOfRows(Parameter& whole, const std::function<void(Parameter&)>& set) {
  if (!whole.packs) whole.master = at::empty(whole.shape, at::kFloat);
  set(whole);
  const at::Tensor values = whole.packs ? whole.packed->Unpacked(at::kFloat) : whole.master;
  whole.master = at::Tensor();
  whole.packed = nullptr;
  return values.square().sum(1).sqrt();
}

// DoRA's magnitudes begin as the norms of the weights' rows.
void SetMagnitudes(const std::vector<Parameter*>& parameters, const ModelConfig& model,
                   const ModelSection& section, uint64_t seed) {
  const std::string suffix = ".lora_magnitude_vector.weight";
  std::map<std::string, TensorSpec> specs;
  for (const LayerSpec& layer : LayerSpecs(model)) {
    for (const TensorSpec& tensor : layer.parameters) specs[tensor.name] = tensor;
  }
  std::map<std::string, Parameter> weights;      // by name
  std::map<std::string, Parameter*> magnitudes;  // by the name of their weight
  for (Parameter* parameter : parameters) {
    if (!parameter->name.ends_with(suffix)) continue;
    const std::string layer = parameter->name.substr(0, parameter->name.size() - suffix.size());
    const TensorSpec& weight = specs.at(layer + ".weight");
    weights.emplace(weight.name, WholeWeight(weight));
    magnitudes[weight.name] = parameter;
  }
  const auto take = [&](Parameter& weight, const std::function<void(Parameter&)>& set) {
    const at::Tensor norms = NormsOfRows(weight, set);
    Parameter* magnitude = magnitudes.at(weight.name);
    const int64_t begin = magnitude->part.split() ? magnitude->part.begin : 0;
    magnitude->stored().copy_(norms.narrow(0, begin, magnitude->shape[0]));
  };
  std::vector<Parameter*> all;
  for (auto& [name, weight] : weights) all.push_back(&weight);
  if (section.init == "random") {
    for (Parameter* weight : all)
      take(*weight, [&](Parameter& whole) { InitializeWeights({&whole}, model, seed); });
    return;
  }
  for (const FolderPart& part : FindFirstFolders(all, model, section).parts) {
    for (Parameter* weight : part.parameters)
      take(*weight, [&](Parameter& whole) { ReadWeight(whole, model, part.folder); });
  }
}

// Goes on with `hash` over the headers of a folder's files, and samples of their values.
uint64_t HashOfWeights(const std::string& folder, uint64_t hash) {
  const SafetensorsFolder files(folder);
  const auto add = [&hash](const void* data, size_t bytes) {
    hash = XXH3_64bits_withSeed(data, bytes, hash);
  };
  for (const std::string& name : files.names()) {
    const SafetensorsReader& file = files.FileOf(name);
    const SafetensorsEntry& entry = file.entries().at(name);
    // I32: weights in GPTQ's form.
    if (!entry.dtype.starts_with("F") && entry.dtype != "BF16" && entry.dtype != "I32") continue;
    add(name.data(), name.size());
    add(entry.dtype.data(), entry.dtype.size());
    add(entry.shape.data(), entry.shape.size() * sizeof(int64_t));
    int64_t numel = 1;
    for (const int64_t size : entry.shape) numel *= size;
    // The first, middle and last elements.
    constexpr int64_t kSampled = 32;
    for (const int64_t at : {int64_t{0}, numel / 2, numel - kSampled}) {
      const int64_t first = std::max<int64_t>(at, 0);
      const int64_t count = std::min(kSampled, numel - first);
      if (count <= 0) continue;
      at::Tensor values = at::empty({count}, at::kFloat);
      file.ReadElements(name, first, values);
      add(values.const_data_ptr(), static_cast<size_t>(count) * sizeof(float));
    }
  }
  return hash;
}

}  // namespace

std::vector<std::string> SetFirstWeights(const std::vector<Parameter*>& parameters,
                                         const ModelConfig& model, const ModelSection& section,
                                         uint64_t seed) {
  std::vector<std::string> zeros;
  if (section.init == "random") {
    InitializeWeights(parameters, model, seed);
  } else {
    const FirstFolders folders = FindFirstFolders(parameters, model, section);
    for (const FolderPart& part : folders.parts) {
      for (std::string& name : LoadWeights(part.parameters, model, part.folder))
        zeros.push_back(std::move(name));
    }
    InitializeWeights(folders.drawn, model, seed);
    InitializeWeights(AdaptersAmong(parameters), model, seed);
  }
  if (model.lora.dora && model.lora.folder.empty()) SetMagnitudes(parameters, model, section, seed);
  if (!model.lora.folder.empty()) LoadPeft(parameters, model, model.lora.folder);
  return zeros;
}

void CheckFirstFolders(const std::vector<Parameter*>& parameters, const ModelConfig& model,
                       const ModelSection& section) {
  for (const FolderPart& part : FindFirstFolders(parameters, model, section).parts)
    CheckWeights(part.parameters, model, part.folder);
}

std::vector<std::string> UnusedInFolders(const ModelConfig& model, const ModelSection& section) {
  std::vector<std::string> lines;
  for (const FolderPart& part : FindFirstFolders({}, model, section).parts) {
    if (!part.alone) continue;
    const std::vector<std::string> unused = UnusedWeights(model, part.folder);
    if (unused.empty()) continue;
    lines.push_back(fmt::format(
        "{}: {} weights are not used, such as {}; do config.json and the weights belong together?",
        part.folder.path, unused.size(), unused.front()));
  }
  return lines;
}

std::string BaseIdentity(const ModelSection& section, uint64_t seed) {
  if (section.init == "random") return fmt::format("random, seed {}", seed);
  std::vector<std::string> folders = FoldersRead(section);
  if (!section.projector.weights.empty()) folders.push_back(section.projector.weights);
  uint64_t hash = 0;
  for (const std::string& folder : folders) hash = HashOfWeights(folder, hash);
  return HexDigits(hash);
}

}  // namespace equipoise
