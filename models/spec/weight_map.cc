#include "models/spec/weight_map.h"

#include "configs/base/error.h"

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

// OpenGVLab's name for a weight of ours, or for one of the parts of a fused tensor. Both are
// beginnings that end where the name ends or at a dot.
struct Renaming {
  const char* ours;
  const char* theirs;
  int part = 0, parts = 1;
};

constexpr Renaming kRenamed[] = {
    {"vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"},
    {"vision_tower.embeddings.patch_embeddings.projection",
     "vision_model.embeddings.patch_embedding"},
    {"vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"},
    {"multi_modal_projector.layer_norm", "mlp1.0"},
    {"multi_modal_projector.linear_1", "mlp1.1"},
    {"multi_modal_projector.linear_2", "mlp1.3"},
};

// Within a layer of the vision tower.
constexpr const char* kOurLayers = "vision_tower.encoder.layer.";
constexpr const char* kTheirLayers = "vision_model.encoder.layers.";
constexpr Renaming kRenamedInLayer[] = {
    {"attention.q_proj", "attn.qkv", 0, 3},
    {"attention.k_proj", "attn.qkv", 1, 3},
    {"attention.v_proj", "attn.qkv", 2, 3},
    {"attention.q_norm", "attn.q_norm"},
    {"attention.k_norm", "attn.k_norm"},
    {"attention.projection_layer", "attn.proj"},
    {"layernorm_before", "norm1"},
    {"layernorm_after", "norm2"},
    {"lambda_1", "ls1"},
    {"lambda_2", "ls2"},
    {"mlp", "mlp"},
};

// `name` without the part that `beginning` matches; false when it does not match.
bool CutBeginning(const std::string& name, const std::string& beginning, std::string* rest) {
  if (!StartsWith(name, beginning)) return false;
  if (name.size() > beginning.size() && name[beginning.size()] != '.') return false;
  *rest = name.substr(beginning.size());
  return true;
}

// "vision_model.encoder.layers." + "17" + "." + "ls1"
struct LayerName {
  std::string number, rest;
};

bool SplitLayer(const std::string& name, const std::string& layers, LayerName* split) {
  const size_t dot = StartsWith(name, layers) ? name.find('.', layers.size()) : name.npos;
  if (dot == name.npos) return false;
  *split = {name.substr(layers.size(), dot - layers.size()), name.substr(dot + 1)};
  return true;
}

// Our names of a tensor in OpenGVLab's naming, in the order of its parts; none for another name.
std::vector<std::string> FromOpenGvLab(const std::string& name) {
  std::string rest;
  std::vector<std::string> ours;
  for (const Renaming& row : kRenamed) {
    if (CutBeginning(name, row.theirs, &rest)) ours.push_back(row.ours + rest);
  }
  LayerName layer;
  if (!SplitLayer(name, kTheirLayers, &layer)) return ours;
  for (const Renaming& row : kRenamedInLayer) {
    if (CutBeginning(layer.rest, row.theirs, &rest)) {
      ours.push_back(kOurLayers + layer.number + "." + row.ours + rest);
    }
  }
  return ours;
}

FileWeight ToOpenGvLab(const std::string& name) {
  std::string rest;
  for (const Renaming& row : kRenamed) {
    if (CutBeginning(name, row.ours, &rest)) return {row.theirs + rest};
  }
  LayerName layer;
  if (!SplitLayer(name, kOurLayers, &layer)) return {name};
  for (const Renaming& row : kRenamedInLayer) {
    if (!CutBeginning(layer.rest, row.ours, &rest)) continue;
    return {kTheirLayers + layer.number + "." + row.theirs + rest, row.part, row.parts};
  }
  return {name};
}

[[noreturn]] void RefuseTwice(const std::string& source, const std::string& one,
                              const std::string& other) {
  throw DataError(source + ": " + one + " and " + other + " are the same weight");
}

}  // namespace

std::string CanonicalWeightName(const std::string& name, bool has_vision) {
  const std::vector<std::string> names = CanonicalWeightNames(name, has_vision);
  return names.size() == 1 ? names[0] : name;
}

std::vector<std::string> CanonicalWeightNames(const std::string& name, bool has_vision) {
  if (has_vision) {
    const std::vector<std::string> ours = FromOpenGvLab(name);
    return ours.empty() ? std::vector{CanonicalInternVl(name)} : ours;
  }
  for (const char* part : {"layers.", "embed_tokens.", "norm."}) {
    if (StartsWith(name, part)) return {"model." + name};
  }
  return {name};
}

FileWeight NameInFolder(const std::string& parameter, WeightNaming naming) {
  return naming == WeightNaming::kOpenGvLab ? ToOpenGvLab(parameter) : FileWeight{parameter};
}

WeightMap::WeightMap(const std::vector<std::string>& file_names, bool has_vision,
                     const std::string& source)
    : has_vision_(has_vision) {
  for (const std::string& name : file_names) {
    const std::vector<std::string> held = CanonicalWeightNames(name, has_vision);
    for (size_t i = 0; i < held.size(); ++i) {
      const FileWeight weight{name, static_cast<int>(i), static_cast<int>(held.size())};
      const auto [found, added] = in_file_.emplace(held[i], weight);
      if (added) continue;
      RefuseTwice(source, found->second.name, name);
    }
  }
}

FileWeight WeightMap::Find(const std::string& parameter) const {
  const auto found = in_file_.find(CanonicalWeightName(parameter, has_vision_));
  return found == in_file_.end() ? FileWeight{} : found->second;
}

}  // namespace equipoise
