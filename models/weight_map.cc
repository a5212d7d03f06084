#include "models/weight_map.h"

#include "configs/error.h"

namespace equipoise {
namespace {

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

std::string CanonicalInternVl(std::string name) {
  const std::string model = "model.", language = "language_model.";
  for (const char* part :
       {"model.language_model.", "model.vision_tower.", "model.multi_modal_projector."}) {
    if (StartsWith(name, part)) name = name.substr(model.size());
  }
  if (StartsWith(name, "lm_head.")) return language + name;
  if (!StartsWith(name, language)) return name;
  const std::string rest = name.substr(language.size());
  if (StartsWith(rest, model) || StartsWith(rest, "lm_head.")) return name;
  return language + model + rest;
}

}  // namespace

std::string CanonicalWeightName(const std::string& name, bool has_vision) {
  if (has_vision) return CanonicalInternVl(name);
  for (const char* part : {"layers.", "embed_tokens.", "norm."}) {
    if (StartsWith(name, part)) return "model." + name;
  }
  return name;
}

WeightMap::WeightMap(const std::vector<std::string>& file_names, bool has_vision,
                     const std::string& source)
    : has_vision_(has_vision) {
  for (const std::string& name : file_names) {
    const auto [found, added] = file_name_.emplace(CanonicalWeightName(name, has_vision), name);
    if (!added) {
      throw DataError(source + ": " + found->second + " and " + name + " are the same weight");
    }
  }
}

std::string WeightMap::Find(const std::string& parameter) const {
  const auto found = file_name_.find(CanonicalWeightName(parameter, has_vision_));
  return found == file_name_.end() ? "" : found->second;
}

}  // namespace equipoise
