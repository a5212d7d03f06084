#include "models/weights/peft_folder.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/weights/peft_config.h"
#include "models/weights/peft_layers.h"
#include "models/weights/safetensors.h"
#include "models/weights/weights.h"

namespace equipoise {
namespace {

constexpr char kA[] = ".lora_A.weight", kB[] = ".lora_B.weight";
constexpr char kMagnitude[] = ".lora_magnitude_vector.weight";

// Reads one of the blocks of a block-diagonal B.
void ReadBlock(const SafetensorsReader& file, const PeftTensor& place, Parameter* parameter) {
  at::Tensor& target = parameter->stored();
  const int64_t rank = target.size(1), first = place.ranks.first * rank;
  at::Tensor rows = at::empty({target.size(0), rank * place.ranks.period}, target.options());
  file.ReadInto(place.key, rows, parameter->part, place.outputs);
  target.copy_(rows.narrow(1, first, rank));
  rows.narrow(1, first, rank).zero_();
  if (!rows.any().item<bool>()) return;
  throw DataError(fmt::format(
      "{}: tensor {}: the layers in it have no ranks of their own any more; merge the adapter by "
      "PEFT's merge_and_unload()",
      file.path(), place.key));
}

void ReadAdapter(const SafetensorsReader& file, const PeftTensor& place, Parameter* parameter) {
  if (parameter->name.ends_with(kB) && !place.ranks.whole())
    return ReadBlock(file, place, parameter);
  const FusedRows& rows = parameter->name.ends_with(kA) ? place.ranks : place.outputs;
  file.CheckShape(place.key, parameter->shape, parameter->part, rows);
  file.ReadInto(place.key, parameter->stored(), parameter->part, rows);
}

using Tensors = std::map<std::string, at::Tensor>;

// Rows of a fused tensor by their place, [repeats, period, rows of a block, ...]; the rest is zero.
at::Tensor FusedZeros(const FusedRows& rows, const at::Tensor& part, int64_t columns) {
  const int64_t block = part.size(0) / (rows.repeats * rows.count);
  std::vector<int64_t> shape = {rows.repeats, rows.period, block};
  if (part.dim() > 1) shape.push_back(columns);
  return at::zeros(shape, part.options());
}

at::Tensor BlocksOf(const FusedRows& rows, const at::Tensor& part) {
  return part.unflatten(0, {rows.repeats, rows.count, -1});
}

// The adapter of a fused layer from ours.
void AddFused(const std::string& layer, const std::vector<WeightNames::Held>& parts,
              const Tensors& tensors, std::map<std::string, LazyTensor>* named) {
  std::vector<at::Tensor> as;
  as.reserve(parts.size());
  for (const WeightNames::Held& part : parts) as.push_back(tensors.at(part.name + kA));
  const int64_t rank = as[0].size(0), all = rank * std::ssize(parts);
  at::Tensor b = FusedZeros(parts[0].rows, tensors.at(parts[0].name + kB), all);
  for (int64_t i = 0; i < std::ssize(parts); ++i) {
    const auto& [name, rows] = parts[static_cast<size_t>(i)];
    b.narrow(1, rows.first, rows.count)
        .narrow(3, i * rank, rank)
        .copy_(BlocksOf(rows, tensors.at(name + kB)));
  }
  named->emplace(layer + kA, at::cat(as));
  named->emplace(layer + kB, b.flatten(0, 2));
  if (tensors.count(parts[0].name + kMagnitude) == 0) return;
  int64_t count = 0;
  at::Tensor magnitudes = FusedZeros(parts[0].rows, tensors.at(parts[0].name + kMagnitude), 0);
  for (const auto& [name, rows] : parts) {
    magnitudes.narrow(1, rows.first, rows.count)
        .copy_(BlocksOf(rows, tensors.at(name + kMagnitude)));
    count += rows.count;
  }
  if (count != parts[0].rows.period) {
    throw ConfigError(fmt::format(
        "model.adapter.dora: {} is only a part of PEFT's {}, whose magnitudes would be trained as "
        "a whole; export with --merge",
        parts[0].name, layer));
  }
  named->emplace(layer + ".lora_magnitude_vector", magnitudes.flatten());
}

// Adds the weights of modules that are trained in full, those that are one in PEFT's model, such as
// q, k and v, as one. PeftConfigOf() has seen that all parts are there.
void AddFullWeights(const ModelConfig& config, const Tensors& tensors,
                    std::map<std::string, LazyTensor>* named) {
  const WeightNames names = WeightNamesOf(config);
  std::map<std::string, std::vector<std::pair<FusedRows, at::Tensor>>> fused;
  for (const auto& [name, tensor] : tensors) {
    if (name.find(".lora_") != name.npos) continue;
    const FileWeight place = names.ModuleInMemory(name);
    if (place.rows.whole()) {
      named->emplace(kPeftPrefix + place.name, tensor);
    } else {
      fused[kPeftPrefix + place.name].emplace_back(place.rows, tensor);
    }
  }
  for (const auto& [name, parts] : fused) named->emplace(name, FuseRows(parts));
}

// Adds the head that is tied to a trained embedding.
void AddTiedHead(const ModelConfig& config, const Tensors& tensors,
                 std::map<std::string, LazyTensor>* named) {
  const std::string head = TrainedTiedHead(config);
  if (head.empty()) return;
  const std::string theirs = PeftName(config, head);
  const std::string embedding = LayerSpecs(config).back().tied.name;
  // PEFT finds the head to tie in Transformers' own models alone.
  if (theirs != std::string(kPeftPrefix) + "lm_head.weight") {
    throw ConfigError(fmt::format(
        "model.adapter.train: {} is the head too, and PEFT would not tie them in this model's "
        "code; export with --merge",
        embedding.substr(0, embedding.rfind('.'))));
  }
  named->emplace(theirs, tensors.at(embedding));
}

}  // namespace

void LoadPeft(const std::vector<Parameter*>& parameters, const ModelConfig& config,
              const std::string& folder) {
  const SafetensorsReader file(PeftTensorFile(folder));
  const std::map<std::string, PeftTensor> in_file =
      TensorsFromPeft(config, {file.entries(), file.metadata()}, file.path());
  std::set<std::string> known;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (tensor.role != ParameterRole::kBase) known.insert(tensor.name);
    }
  }
  for (const auto& [name, place] : in_file) {
    if (known.count(name) > 0) continue;
    throw DataError(fmt::format(
        "{}: tensor {} belongs to no linear layer of this model; is it an adapter of another base?",
        file.path(), place.key));
  }
  for (Parameter* parameter : parameters) {
    if (parameter->role == ParameterRole::kBase) continue;
    const auto found = in_file.find(parameter->name);
    if (found == in_file.end()) {
      throw DataError(
          fmt::format("{}: no tensor for {}; is the file whole?", file.path(), parameter->name));
    }
    ReadAdapter(file, found->second, parameter);
    if (at::isfinite(parameter->stored()).all().item<bool>()) continue;
    throw DataError(fmt::format(
        "{}: tensor {}: holds values that are infinite or no numbers; train or write it again",
        file.path(), found->second.key));
  }
}

void WritePeft(const std::string& folder, const ModelConfig& config, const std::string& base,
               const std::map<std::string, at::Tensor>& tensors) {
  const Json description = PeftConfigOf(config, base);  // throws before anything is written
  const FusedAdapters fused = FusedAdaptersOf(config);
  std::map<std::string, LazyTensor> named;
  std::set<std::string> in_fused;
  for (const auto& [name, parts] : fused) {
    AddFused(kPeftPrefix + name, parts, tensors, &named);
    for (const WeightNames::Held& part : parts) in_fused.insert(part.name);
  }
  for (const auto& [name, tensor] : tensors) {
    const size_t adapter = name.rfind(".lora_");
    if (adapter != name.npos && in_fused.count(name.substr(0, adapter)) == 0)
      named.emplace(PeftName(config, name), tensor);
  }
  AddFullWeights(config, tensors, &named);
  AddTiedHead(config, tensors, &named);
  WriteSafetensors(PeftTensorFile(folder), named, PeftMetadata(fused));
  std::ofstream out(PeftConfigFile(folder));
  out << description.dump(2) << "\n";
  if (!out.flush())
    throw RunError(PeftConfigFile(folder) + ": cannot write; free or change the folder");
}

}  // namespace equipoise
