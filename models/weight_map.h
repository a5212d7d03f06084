#pragma once

#include <map>
#include <string>
#include <vector>

namespace equipoise {

// The name that a weight has here (and in files written by save_pretrained), for any name that a
// version of Transformers gives it:
//   model.language_model.layers.0.X   language_model.model.layers.0.X    (in memory / in files)
//   lm_head.weight of InternVL        language_model.lm_head.weight
//   model.vision_tower.X              vision_tower.X
//   layers.0.X of a bare text model   model.layers.0.X
// A name without such a form comes back unchanged.
std::string CanonicalWeightName(const std::string& name, bool has_vision);

// Finds our parameters among the names of a file.
class WeightMap {
 public:
  // `source` begins the DataError that is thrown when two names mean the same weight.
  WeightMap(const std::vector<std::string>& file_names, bool has_vision, const std::string& source);

  // The name in the file of a parameter (given by any of its names); empty when it is not there.
  std::string Find(const std::string& parameter) const;

 private:
  bool has_vision_;
  std::map<std::string, std::string> file_name_;  // by canonical name
};

}  // namespace equipoise
