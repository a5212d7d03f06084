#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/spec/model_config.h"

namespace equipoise {

// Which rows (dimension 0) of a tensor in a file are a weight of ours: the file's rows are
// `repeats` equal groups of `period` equal blocks, and blocks [first, first + count) of each group
// are ours, in this order. The default is the whole tensor.
// - The second of three equal parts: first 1, count 1, period 3, repeats 1.
// - The keys among groups of g query heads, a key and a value, a group for each key/value head:
//   first g, count 1, period g + 2, repeats as many as there are key/value heads.
struct FusedRows {
  int64_t first = 0, count = 1, period = 1, repeats = 1;

  bool whole() const { return period == count; }
};

// Another name of weights, in the naming of the code that a model was published with. Both names
// are patterns: they end where the weight's name ends or at a dot, and '#' stands for a layer's
// number.
struct Renaming {
  std::string ours, theirs;
  FusedRows rows;
};

// Where a weight lies in a file.
struct FileWeight {
  std::string name;  // empty: not there
  FusedRows rows;
};

// Names of a model's weights: ours, which are those that Transformers' save_pretrained writes, and
// others that files have. LibTorch-free.
class WeightNames {
 public:
  WeightNames(std::vector<Renaming> renamings, const ModelConfig& config);

  struct Held {
    std::string name;  // ours
    FusedRows rows;    // of the file's tensor
  };
  // The weights that a file's tensor of any naming holds: one weight, or several of a fused tensor.
  // A name that has no other form comes back unchanged.
  //   model.language_model.layers.0.X   language_model.model.layers.0.X    (in memory / in files)
  //   lm_head.weight beside an encoder  language_model.lm_head.weight
  //   layers.0.X of a bare text model   model.layers.0.X
  // Ours() takes the right sides of a model's renamings too.
  std::vector<Held> Ours(const std::string& name) const;
  // Our name of a tensor that is not fused; of a fused one the name itself.
  std::string Canonical(const std::string& name) const;
  // Where a parameter (given by our name) lies in a folder of the model's naming.
  FileWeight InFolder(const std::string& parameter) const;

 private:
  std::vector<Renaming> renamings_;
  bool has_vision_;
  WeightNaming naming_;
};

// Finds our parameters among the names of a file.
class WeightMap {
 public:
  // `source` begins the DataError that is thrown when two names mean the same weight.
  WeightMap(const std::vector<std::string>& file_names, const WeightNames& names,
            const std::string& source);

  // Where a parameter (given by any of its names) lies in the file.
  FileWeight Find(const std::string& parameter) const;

 private:
  const WeightNames names_;
  std::map<std::string, FileWeight> in_file_;  // by our name
};

}  // namespace equipoise
