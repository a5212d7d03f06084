#include "models/weights/projector_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "models/families/families.h"
#include "models/families/llava/original_llava.h"
#include "models/weights/safetensors.h"

namespace equipoise {
namespace {

constexpr std::string_view kOurs = "multi_modal_projector.", kLlava = "mm_projector.",
                           kInternVl = "mlp1.";

using Shapes = std::map<std::string, std::vector<int64_t>>;  // by our names

// Where the name of a projector's weight in a file goes on behind the projector's own name; npos
// for another weight.
size_t BehindProjector(std::string_view name) {
  if (name.starts_with(kInternVl)) return kInternVl.size();
  for (const std::string_view word : {kOurs, kLlava}) {
    const size_t found = name.find(word);
    if (found != name.npos && (found == 0 || name[found - 1] == '.')) return found + word.size();
  }
  return name.npos;
}

Shapes ShapesIn(const WeightFolder& from) {
  Shapes shapes;
  const SafetensorsFolder files(from.path);
  for (const std::string& name : files.names()) {
    if (BehindProjector(name) == name.npos) continue;
    shapes[from.names->Canonical(from.prefix + name)] = files.FileOf(name).entries().at(name).shape;
  }
  return shapes;
}

Shapes ShapesOf(const ModelConfig& config) {
  Shapes shapes;
  for (const LayerSpec& layer : LayerSpecs(config)) {
    for (const TensorSpec& tensor : layer.parameters) {
      if (tensor.role == ParameterRole::kAdapter) continue;  // over the projector that is read
      if (tensor.name.starts_with(kOurs)) shapes[tensor.name] = tensor.shape;
    }
  }
  return shapes;
}

// The matrices, and whether there are biases.
std::string Text(const Shapes& shapes) {
  std::vector<std::string> matrices;
  bool biases = false;
  for (const auto& [name, shape] : shapes) {
    biases = biases || name.ends_with(".bias");
    if (shape.size() < 2) continue;
    const size_t behind = BehindProjector(name);
    matrices.push_back(fmt::format("{} [{}]", name.substr(behind), fmt::join(shape, ", ")));
  }
  return fmt::format("{}{}", fmt::join(matrices, ", "), biases ? "" : ", without biases");
}

}  // namespace

WeightFolder ProjectorFile(const std::string& key, const std::string& path,
                           const ModelConfig& config) {
  if (!std::filesystem::is_regular_file(path)) {
    throw DataError(fmt::format(
        "{}: {}: no such file; give LLaVA's mm_projector.bin, or a .safetensors file", key, path));
  }
  WeightFolder file(path);
  // Those of stage 1, and of a stage with adapters.
  file.names = WeightNamesOf(config, OriginalProjectorNames({"", "model.", "base_model.model.",
                                                             "base_model.model.model."}));
  RequireProjector(key, file, config);
  return file;
}

void RequireProjector(const std::string& key, const WeightFolder& from, const ModelConfig& config) {
  const Shapes theirs = ShapesIn(from), ours = ShapesOf(config);
  if (theirs == ours) return;
  if (theirs.empty()) {
    throw DataError(
        fmt::format("{}: {}: holds no projector (such as mm_projector.0.weight)", key, from.path));
  }
  throw DataError(
      fmt::format("{}: {}: its projector is {}, the model's is {}; give one that was trained "
                  "between the same encoder and language model",
                  key, from.path, Text(theirs), Text(ours)));
}

}  // namespace equipoise
