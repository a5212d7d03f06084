#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/spec/model_config.h"

namespace equipoise {

// The name that a weight has here (and in files written by save_pretrained), for any name that a
// version of Transformers, or OpenGVLab's own code, gives it:
//   model.language_model.layers.0.X   language_model.model.layers.0.X    (in memory / in files)
//   lm_head.weight of InternVL        language_model.lm_head.weight
//   model.vision_tower.X              vision_tower.X
//   layers.0.X of a bare text model   model.layers.0.X
//   vision_model.X, mlp1.X            vision_tower.Y, multi_modal_projector.Y
// A name without such a form comes back unchanged, as does that of a fused weight.
std::string CanonicalWeightName(const std::string& name, bool has_vision);

// The weights that a file's tensor holds, by their names here: one, or those of a fused tensor
// (OpenGVLab's attn.qkv), equal parts that lie behind each other along dimension 0.
std::vector<std::string> CanonicalWeightNames(const std::string& name, bool has_vision);

// Where a weight lies in a file: part `part` of the tensor's `parts`.
struct FileWeight {
  std::string name;  // empty: not there
  int part = 0, parts = 1;
};

// Where a parameter (given by its name here) lies in a folder of that naming.
FileWeight NameInFolder(const std::string& parameter, WeightNaming naming);

// Finds our parameters among the names of a file.
class WeightMap {
 public:
  // `source` begins the DataError that is thrown when two names mean the same weight.
  WeightMap(const std::vector<std::string>& file_names, bool has_vision, const std::string& source);

  // Where a parameter (given by any of its names) lies in the file.
  FileWeight Find(const std::string& parameter) const;

 private:
  bool has_vision_;
  std::map<std::string, FileWeight> in_file_;  // by canonical name
};

}  // namespace equipoise
