#include "trainer/checkpoint/base_weights.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
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

// A whole weight's values in fp32, of no mesh.
at::Tensor WholeWeight(const TensorSpec& spec, const ModelConfig& model,
                       const ModelSection& section, uint64_t seed) {
  Parameter whole;
  whole.name = spec.name;
  whole.shape = spec.shape;
  whole.packs = spec.packing != Packing::kNone;
  if (!whole.packs) whole.master = at::empty(spec.shape, at::kFloat);
  if (section.init == "random") {
    InitializeWeights({&whole}, model, seed);
  } else {
    ReadWeight(whole, model, section.hf);
  }
  return whole.packs ? whole.packed->Unpacked(at::kFloat) : whole.master;
}

// DoRA's magnitudes begin as the norms of the weights' rows.
void SetMagnitudes(const std::vector<Parameter*>& parameters, const ModelConfig& model,
                   const ModelSection& section, uint64_t seed) {
  const std::string suffix = ".lora_magnitude_vector.weight";
  std::map<std::string, TensorSpec> specs;
  for (const LayerSpec& layer : LayerSpecs(model)) {
    for (const TensorSpec& tensor : layer.parameters) specs[tensor.name] = tensor;
  }
  for (Parameter* parameter : parameters) {
    if (!parameter->name.ends_with(suffix)) continue;
    const std::string layer = parameter->name.substr(0, parameter->name.size() - suffix.size());
    const at::Tensor norms =
        WholeWeight(specs.at(layer + ".weight"), model, section, seed).square().sum(1).sqrt();
    const int64_t begin = parameter->part.split() ? parameter->part.begin : 0;
    parameter->stored().copy_(norms.narrow(0, begin, parameter->shape[0]));
  }
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
  const SafetensorsFolder files(section.hf);
  uint64_t hash = 0;
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
  return HexDigits(hash);
}

}  // namespace equipoise
