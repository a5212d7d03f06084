#include "models/spec/weight_names.h"

#include <optional>
#include <utility>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// Our name of a tensor in a file of some version of Transformers, for a model with an encoder.
std::string Canonicalized(std::string name) {
  const std::string model = "model.", language = "language_model.";
  for (const char* part :
       {"model.language_model.", "model.vision_tower.", "model.multi_modal_projector."}) {
    if (name.starts_with(part)) name = name.substr(model.size());
  }
  if (name.starts_with("lm_head.")) return language + name;
  if (!name.starts_with(language)) return name;
  const std::string rest = name.substr(language.size());
  if (rest.starts_with(model) || rest.starts_with("lm_head.")) return name;
  return language + model + rest;
}

// A name that fits a pattern: the number at its '#', and the rest of the name after the pattern.
struct Match {
  std::string number, rest;
};

std::optional<Match> MatchPattern(const std::string& name, const std::string& pattern) {
  Match match;
  size_t at = 0;
  for (const char c : pattern) {
    if (c == '#') {
      const size_t end = name.find_first_not_of("0123456789", at);
      match.number = name.substr(at, end == name.npos ? name.npos : end - at);
      if (match.number.empty()) return std::nullopt;
      at += match.number.size();
    } else if (at >= name.size() || name[at++] != c) {
      return std::nullopt;
    }
  }
  if (at < name.size() && name[at] != '.') return std::nullopt;
  match.rest = name.substr(at);
  return match;
}

std::string Completed(const std::string& pattern, const Match& match) {
  std::string name = pattern;
  const size_t hash = name.find('#');
  if (hash != name.npos) name.replace(hash, 1, match.number);
  return name + match.rest;
}

// The place of one of our names by the first renaming that fits.
FileWeight Place(const std::vector<Renaming>& renamings, const std::string& ours) {
  for (const Renaming& row : renamings) {
    if (const auto match = MatchPattern(ours, row.ours)) {
      return {Completed(row.theirs, *match), row.rows};
    }
  }
  return {ours, {}};
}

}  // namespace

WeightNames::WeightNames(const ModelConfig& config, std::vector<Renaming> renamings,
                         const std::vector<Renaming>& decoder, std::vector<Renaming> in_memory)
    : renamings_(std::move(renamings)),
      decoder_(decoder),
      in_memory_(std::move(in_memory)),
      has_vision_(config.has_vision),
      naming_(config.naming) {
  renamings_.insert(renamings_.end(), decoder.begin(), decoder.end());
}

std::vector<WeightNames::Held> WeightNames::Renamed(const std::string& name) const {
  std::vector<Held> held;
  for (const Renaming& row : renamings_) {
    if (const auto match = MatchPattern(name, row.theirs)) {
      held.push_back({Completed(row.ours, *match), row.rows});
    }
  }
  return held;
}

std::vector<WeightNames::Held> WeightNames::Ours(const std::string& name) const {
  std::vector<Held> held = Renamed(name);
  if (!held.empty()) return held;
  if (has_vision_) {
    const std::string canonical = Canonicalized(name);
    held = Renamed(canonical);
    return held.empty() ? std::vector<Held>{{canonical, {}}} : held;
  }
  for (const char* part : {"layers.", "embed_tokens.", "norm."}) {
    if (name.starts_with(part)) return {{"model." + name, {}}};
  }
  return {{name, {}}};
}

std::string WeightNames::Canonical(const std::string& name) const {
  const std::vector<Held> held = Ours(name);
  return held.size() == 1 ? held[0].name : name;
}

FileWeight WeightNames::InFolder(const std::string& parameter) const {
  // Our names are those of the files, unless the family tells files and modules apart.
  const bool ours = naming_ == WeightNaming::kTransformers && in_memory_.empty();
  return Place(ours ? decoder_ : renamings_, parameter);
}

FileWeight WeightNames::ModuleInMemory(const std::string& module) const {
  if (in_memory_.empty() && naming_ != WeightNaming::kTransformers)
    return Place(renamings_, module);
  FileWeight place = Place(decoder_, module);
  const std::string language = "language_model.", model = language + "model.";
  if (!in_memory_.empty()) {
    const FileWeight loaded = Place(in_memory_, place.name);
    place = {loaded.name, loaded.rows.whole() ? place.rows : loaded.rows};
  } else if (place.name.starts_with(language + "lm_head")) {
    place.name.erase(0, language.size());
  } else if (place.name.starts_with(model)) {
    place.name = "model." + language + place.name.substr(model.size());
  } else if (has_vision_) {
    place.name.insert(0, "model.");
  }
  return place;
}

std::string WeightNames::InMemory(const std::string& module) const {
  const FileWeight place = ModuleInMemory(module);
  return place.rows.whole() ? place.name : module;
}

WeightMap::WeightMap(const std::vector<std::string>& file_names, const WeightNames& names,
                     const std::string& source)
    : names_(names) {
  for (const std::string& name : file_names) {
    for (const WeightNames::Held& held : names_.Ours(name)) {
      const auto [found, added] = in_file_.emplace(held.name, FileWeight{name, held.rows});
      if (added) continue;
      throw DataError(source + ": " + found->second.name + " and " + name + " are the same weight");
    }
  }
}

FileWeight WeightMap::Find(const std::string& parameter) const {
  const auto found = in_file_.find(names_.Canonical(parameter));
  return found == in_file_.end() ? FileWeight{} : found->second;
}

}  // namespace equipoise
