#include "models/weights/peft_folder.h"

#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include <fstream>
#include <set>

#include "configs/base/error.h"
#include "models/families/adapters.h"
#include "models/families/families.h"
#include "models/weights/peft_config.h"
#include "models/weights/safetensors.h"

namespace equipoise {

void LoadPeft(const std::vector<Parameter*>& parameters, const ModelConfig& config,
              const std::string& folder) {
  const SafetensorsReader file(PeftTensorFile(folder));
  const WeightNames names = WeightNamesOf(config);
  std::map<std::string, std::string> in_file;  // by our name
  for (const auto& [key, entry] : file.entries()) in_file[NameFromPeft(names, key)] = key;
  std::set<std::string> known;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (tensor.role != ParameterRole::kBase) known.insert(tensor.name);
    }
  }
  for (const auto& [name, key] : in_file) {
    if (known.count(name) > 0) continue;
    throw DataError(fmt::format(
        "{}: tensor {} belongs to no linear layer of this model; is it an adapter of another base?",
        file.path(), key));
  }
  for (Parameter* parameter : parameters) {
    if (parameter->role == ParameterRole::kBase) continue;
    const auto found = in_file.find(parameter->name);
    if (found == in_file.end()) {
      throw DataError(
          fmt::format("{}: no tensor for {}; is the file whole?", file.path(), parameter->name));
    }
    file.CheckShape(found->second, parameter->shape, parameter->part);
    file.ReadInto(found->second, parameter->stored(), parameter->part);
    if (at::isfinite(parameter->stored()).all().item<bool>()) continue;
    throw DataError(fmt::format(
        "{}: tensor {}: holds values that are infinite or no numbers; train or write it again",
        file.path(), found->second));
  }
}

void WritePeft(const std::string& folder, const ModelConfig& config, const std::string& base,
               const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, LazyTensor> named;
  for (const auto& [name, tensor] : tensors) named.emplace(PeftName(config, name), tensor);
  WriteSafetensors(PeftTensorFile(folder), named, {{"format", "pt"}});
  std::ofstream out(PeftConfigFile(folder));
  out << PeftConfigOf(config, base).dump(2) << "\n";
  if (!out.flush())
    throw RunError(PeftConfigFile(folder) + ": cannot write; free or change the folder");
}

}  // namespace equipoise
