#include "models/weights/peft_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/families/adapters.h"
#include "models/families/families.h"

namespace equipoise {
namespace {

constexpr char kFused[] = "equipoise.fused";  // key of the metadata

// The parts of a fused layer that the file has, all of ours where it does not say.
std::vector<WeightNames::Held> PartsInFile(const std::vector<WeightNames::Held>& all,
                                           const std::vector<std::string>& chosen,
                                           const std::string& where) {
  if (chosen.empty()) return all;
  std::vector<WeightNames::Held> parts;
  for (const std::string& name : chosen) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&name](const auto& held) { return held.name == name; });
    if (found == all.end()) {
      throw DataError(
          fmt::format("{}: {}: no part of it in this model; is it an adapter of "
                      "another base?",
                      where, name));
    }
    parts.push_back(*found);
  }
  return parts;
}

}  // namespace

std::string TrainedTiedHead(const ModelConfig& config) {
  const LayerSpec last = LayerSpecs(config).back();
  const bool trained = !last.tied.name.empty() && last.tied.role == ParameterRole::kWeight;
  return trained ? last.name + ".weight" : "";
}

std::map<std::string, PeftTensor> TensorsFromPeft(const ModelConfig& model,
                                                  const SafetensorsHeader& header,
                                                  const std::string& path) {
  const WeightNames names = WeightNamesOf(model);
  const auto fused = FusedInFile(header, path);
  std::map<std::string, PeftTensor> tensors;
  for (const auto& [key, entry] : header.entries) {
    const std::string prefix = kPeftPrefix;
    const std::string name = key.starts_with(prefix) ? key.substr(prefix.size()) : key;
    const size_t end = name.rfind(".lora_");
    if (end == name.npos) {
      for (const WeightNames::Held& part : names.Ours(name))
        tensors[part.name] = {key, part.rows, {}};
      continue;
    }
    const std::string layer = name.substr(0, end);
    std::string last = name.substr(end);
    if (last == ".lora_magnitude_vector") last += ".weight";
    const auto found = fused.find(layer);
    const bool is_ours = found != fused.end();
    const auto parts =
        PartsInFile(names.Ours(layer), is_ours ? found->second : std::vector<std::string>(), path);
    const int64_t count = is_ours ? std::ssize(parts) : 1;
    for (int64_t i = 0; i < std::ssize(parts); ++i) {
      const auto& [ours, rows] = parts[static_cast<size_t>(i)];
      tensors[ours + last] = {key, rows, {is_ours ? i : 0, 1, count, 1}};
    }
  }
  const LayerSpec head = LayerSpecs(model).back();
  if (tensors.count(head.tied.name) > 0) tensors.erase(head.name + ".weight");
  return tensors;
}

FusedAdapters FusedAdaptersOf(const ModelConfig& config) {
  const WeightNames names = WeightNamesOf(config);
  const std::string suffix = ".lora_A.weight";
  FusedAdapters fused;
  for (const LayerSpec& spec : LayerSpecs(config)) {
    for (const TensorSpec& tensor : spec.parameters) {
      if (!tensor.name.ends_with(suffix)) continue;
      const std::string layer = tensor.name.substr(0, tensor.name.size() - suffix.size());
      const FileWeight place = names.ModuleInMemory(layer);
      if (!place.rows.whole()) fused[place.name].push_back({layer, place.rows});
    }
  }
  for (auto& [name, parts] : fused) {
    std::sort(parts.begin(), parts.end(),
              [](const auto& a, const auto& b) { return a.rows.first < b.rows.first; });
  }
  return fused;
}

std::map<std::string, std::string> PeftMetadata(const FusedAdapters& fused) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  Json json;
  for (const auto& [name, parts] : fused) {
    for (const WeightNames::Held& part : parts) json[name].push_back(part.name);
  }
  if (!fused.empty()) metadata[kFused] = json.dump();
  return metadata;
}

std::map<std::string, std::vector<std::string>> FusedInFile(const SafetensorsHeader& header,
                                                            const std::string& path) {
  const auto text = header.metadata.find(kFused);
  if (text == header.metadata.end()) return {};
  const std::string where = path + ": " + kFused;
  const auto refuse = [&where] {
    throw DataError(where + ": no lists of layers by name; export the adapter again");
  };
  const Json json = ParseJson(text->second, where);
  if (!json.is_object()) refuse();
  std::map<std::string, std::vector<std::string>> fused;
  for (const auto& [name, parts] : json.items()) {
    if (!parts.is_array() || parts.empty()) refuse();
    for (const Json& part : parts) {
      if (!part.is_string()) refuse();
      fused[name].push_back(part.get<std::string>());
    }
  }
  return fused;
}

}  // namespace equipoise
